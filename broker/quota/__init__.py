"""Quotas: how much of a broker one user or client may take, and what happens to who takes more.

A quota is a rate: bytes produced or fetched a second, percent of the time of the broker's handlers,
partitions created or deleted a second.  Nothing is refused for it, but strict controller mutations:
the answer says `throttle_time_ms`, and the broker does not read from the connection for as long.

Source: kafka.server.ClientQuotaManager and its kin.
"""
