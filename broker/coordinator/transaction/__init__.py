"""The transaction coordinator: the partitions of a producer's transaction, and its outcome.

Every transactional id belongs to one partition of __transaction_state, and the broker that leads
that partition coordinates it.  A transaction ends in two steps.  First the decision is recorded
there (PrepareCommit, PrepareAbort), and from that moment it holds, whatever fails.  Then the leader
of each partition of the transaction writes a marker, and when all have, the end is recorded, too.
A coordinator that takes over reads the log and goes on where the last one stopped.

    records      the stored keys and values                                       pure
    transaction  one transactional id: its state, `replay`                        pure
    steps        InitProducerId, AddPartitionsToTxn, EndTxn, time-outs, expiry    pure
    shard        the ids of one partition; writes that wait for the HW            pure
    coordinator  the shell: requests in, appends and answers out
    markers      sends markers to the leaders until each has one
    verifier     asks a coordinator whether a partition belongs to a transaction (KIP-890)
"""
