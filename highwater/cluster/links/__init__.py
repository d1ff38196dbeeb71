"""The brokers' links: TCP proxies that understand frames, so that single requests can be held or
lost."""
