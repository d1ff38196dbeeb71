"""The effect of a client's settings on its data, and why it cannot connect: `highwater doctor`.

`settings_file` reads a client's file, `dialects` knows the clients' names and defaults, `rules`
judges the settings (pure), `cluster_limits` compares them with the cluster's own, and `reach`
follows a connection step by step.
"""
