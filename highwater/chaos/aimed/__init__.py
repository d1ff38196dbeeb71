"""Faults that aim at a user's application: they strike where its mistake would show.

    windows   which inputs would be lost, or repeated, if a copy died now
    watchers  what the topics say: what is stored, shown, and committed
    doors     proxies of each copy's own: whose messages they are, and which are held
    wire      what a copy's own requests tell
    probes    the verbs: hold one kind of message until the window is open, then strike

What is seen on the wire says only when to strike and how long to hold.  It never accuses: the
contract over the topics does.
"""
