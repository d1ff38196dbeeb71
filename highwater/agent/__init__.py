"""The agent: one process that owns a cluster, and serves a control API by HTTP.

A user's process needs none of Highwater's libraries for it: `highwater.agent.client` starts an
agent and speaks to it with the standard library alone.  So nothing is imported here.
"""
