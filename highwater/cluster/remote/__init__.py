"""Clusters that others started: at an address, with TLS or a login, or in a Compose project."""
