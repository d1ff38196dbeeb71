"""Rates and their limits: quotas of clients and users, limits of connections, throttling."""
