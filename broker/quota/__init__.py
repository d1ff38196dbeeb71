"""Rates and their limits: quotas on clients and users, limits on connections, throttling."""
