"""Carries the controller's decisions out: the candidate, the term, ZooKeeper, the senders."""
