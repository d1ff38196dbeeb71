"""Partitions and their replication: role, HW and ISR; fetchers and fetch sessions; moves of logs.

`partition` is one replica here.  `replica_manager` holds all of them, and is the only way to an
append or a read.
"""
