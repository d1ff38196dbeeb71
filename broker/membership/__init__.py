"""This broker as one of many: its registration, its session, its failing directories.

`peer_link` is a connection to another broker for requests other than replication; `agreement` asks
all brokers whether a change has reached them.
"""
