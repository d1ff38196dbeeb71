"""Share groups (KIP-932): their members, and which share-partitions each of them reads.

Any number of members reads a partition.  So a member gets its target at once, and never has to give
anything up first.  A share-partition is assigned when its state is initialized at the share
coordinator.

    records          the stored keys and values                                          pure
    share_group      one group, made from its records alone                              pure
    share_steps      heartbeats, time-outs, and what becomes of share-partitions' state  pure
    simple_assignor  which member gets which partitions                                  pure
"""
