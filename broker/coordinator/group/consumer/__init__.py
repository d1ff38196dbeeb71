"""The consumer group protocol (KIP-848): the coordinator assigns, members follow by heartbeats.

A member names its topics, and the coordinator computes a *target* for each member.  A member comes
to its target in steps, each with the answer to a heartbeat: it first gives up partitions, and gets
others as soon as their former owners have given them up.  The group epoch rises with each change
that needs a new target, and a member's epoch says to which target it has come.

    members         one member: its subscription and its current assignment                 pure
    records         the stored keys and values                                              pure
    xxh3            the hash of topics that a group's record has                            pure
    consumer_group  one group, made from its records                                        pure
    assignors       uniform and range: targets of members                                   pure
    reconciliation  the next step of a member towards its target                            pure
    subscribed_topics  what the protocol must know of topics                                   pure
    heartbeats      requests and answers, and what is wrong with one                        pure
    consumer_steps  heartbeat, leave, time-outs                                             pure
    classic_members members that still use the classic protocol                             pure
    embedded        the bytes in which those subscribe, and are assigned                    pure
    migration       when a group with members changes its protocol                          pure

A step returns records and an answer, and changes nothing.  The records are applied when they are
appended, and the answer goes out when they are committed: two members that come at the same time
are answered in turn, as if the first one's records were there.  If they are lost, so is the term
of this coordinator, and with it the group in memory.
"""
