"""The coordinators: of groups, and of transactions.

shard              one partition of a coordinator's topic, in one term as its leader   pure
runtime            shards come and go with leadership; writes wait for the HW
partition_loading  reads a partition from its start
pending            answers that wait: a client's, and a write's for the HW
"""
