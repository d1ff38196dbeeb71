"""The coordinators of groups, of transactions and of share-partitions' state, and the parts that
they have in common.

shard              one partition of a coordinator's topic, in one term as its leader   pure
runtime            shards come and go with leadership; writes wait for the HW
partition_loading  reads a partition from its start
pending            what waits: clients' requests, and writes for the HW
record_fields      fields of records, written and read                                    pure
"""
