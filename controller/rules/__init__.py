"""The controller's decisions: pure state machines that take events and return effects.

`machine` puts the parts together; `state` is the cluster as they see it.
"""
