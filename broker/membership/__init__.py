"""This broker among the others: its registration, its session, its directories that fail.

`peer_link` is a connection to another broker for questions that are no replication, and
`agreement` asks all of them whether a change has arrived.
"""
