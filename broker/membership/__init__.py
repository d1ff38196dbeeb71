"""This broker among the others: its registration, its session, its failing directories.

`peer_link` is a connection to another broker for questions other than replication, and
`agreement` asks all of them whether a change has arrived.
"""
