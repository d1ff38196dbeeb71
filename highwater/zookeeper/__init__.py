"""A ZooKeeper server in Python; its tree, sessions and watches are a pure machine.

`tree` has the znodes and their changes, `acl` decides who may make a change, `watches` knows who is
notified, and `ensemble` has the sessions, which do all of this.  None of it knows a clock, a socket
or a disk: time and zxids are arguments, and events are returned as values.  The simulation uses the
same machine.

Source of each operation, and of the order of its checks: PrepRequestProcessor,
FinalRequestProcessor, DataTree, DataNode and WatchManager of Apache ZooKeeper 3.9.
"""
