"""Faults that aim at a user's application: they strike where its mistake would show.

    windows    which inputs would be lost, or repeated, if a copy died now
    commits    what groups commit, for the windows; the output is watched by `app_traffic`
    doors      each copy's own proxies, which show whose a message is, and can hold it
    wire       what a copy's own requests show
    probes     verbs that hold one kind of message until the window is open, then strike
    refusals   verbs that refuse what a copy writes
    promises   what was tried for each promise
    stories    the mistake in words

What is seen on the wire decides only when to strike and how long to hold.  It never accuses: that
is left to the contract over the topics.
"""
