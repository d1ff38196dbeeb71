"""Partitions and their replication: role, HW and ISR; fetchers and fetch sessions; moves of logs.

`partition` is one replica on this broker.  `replica_manager` holds all of them, and every append or
read goes through it.
"""
