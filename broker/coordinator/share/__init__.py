"""The share coordinator: the state of share-partitions, for the brokers that lead them (KIP-932).

Every share-partition (a group, a topic's id, a partition) belongs to one partition of
__share_group_state, and the broker that leads that partition coordinates it.

    records        the stored keys and values                                        pure
    state_batches  batches that overlap, made one list                               pure
    share_states   the states of one partition: what a call changes, and its answer  pure
    shard          the states of one partition, in one term
    coordinator    the shell: calls in, appends and answers out; upkeep
    state_metrics  how many writes there are, and how long they take
"""
