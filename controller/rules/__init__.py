"""The controller's decisions: pure state machines, events in and effects out.

`machine` puts the parts together; `state` is the cluster as they see it.
"""
