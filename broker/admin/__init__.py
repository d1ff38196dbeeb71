"""Changes that a client asks for and ZooKeeper records: topics, partitions, configurations.

`assignment` is pure.  `topic_znodes`, `configs` and `producer_ids` write through the broker's
session, `topic_waits` answers once every broker shows the change, and `leaving` asks the controller
to move this broker's leaders before it stops.
"""
