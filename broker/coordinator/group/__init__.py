"""The group coordinator: the members of consumer groups, and the offsets each has committed.

Every group belongs to one partition of __consumer_offsets, and the broker that leads that partition
coordinates it.  State that must survive the broker is a record there (`records`).  A group in
memory (`group`) is the result of replaying those records, together with the rebalance in progress,
which is not stored and simply starts again elsewhere.

    records      the stored keys and values                                              pure
    group        one group: members, offsets, `replay`                                   pure
    rebalance    join, sync, heartbeat, leave: the protocol on one group                 pure
    consumer/    the consumer protocol of KIP-848: members are assigned here               pure
    topic_patterns   regular expressions that stand for topics                         pure
    rebalance_meter  how often groups of a kind take a new epoch                       pure
    moves        a living group's move between the two protocols                       pure
    consumer_groups  the shell's part for the consumer protocol
    share/       share groups (KIP-932)                                                 pure
    share_groups, share_offsets  the shell's parts for share groups
    offsets      commit, fetch, delete and expiry of one group's offsets                 pure
    shard        the groups of one partition; writes that wait for the HW                pure
    coordinator  the shell: requests in, appends, timers and answers out
"""
