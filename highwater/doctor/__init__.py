"""The effect of a client's settings on its data, and why it cannot connect: `highwater doctor`.

`settings_file` reads a client's file, `dialects` knows the clients' names and defaults, `rules`
judges the settings (pure), `cluster_rules` holds them against the cluster's own, and `reach` goes
the way of a connection step by step.
"""
