"""Carries out the controller's decisions: the candidate, the term, ZooKeeper, the senders."""
