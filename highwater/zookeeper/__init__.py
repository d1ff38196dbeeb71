"""ZooKeeper, served by Python: its tree, its sessions and watches as a pure machine.

`tree` has the znodes and the changes of them, `acl` who may make one, `watches` who is told, and
`ensemble` the sessions that do all of this.  None of it knows a clock, a socket or a disk: time and
zxids are arguments, and events come back as values.  The simulation stands on the same machine.

Source of what is done, and in which order it is refused: PrepRequestProcessor,
FinalRequestProcessor, DataTree, DataNode and WatchManager of Apache ZooKeeper 3.9.
"""
