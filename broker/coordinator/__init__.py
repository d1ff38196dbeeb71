"""The coordinators of groups and of transactions, and the parts that both share.

shard              one partition of a coordinator's topic, in one term as its leader   pure
runtime            shards come and go with leadership; writes wait for the HW
partition_loading  reads a partition from its start
pending            what waits: clients' requests, and writes for the HW
"""
