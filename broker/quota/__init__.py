"""Rates and what they cost: quotas of clients and users, limits of connections, throttling."""
