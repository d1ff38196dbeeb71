"""Faults on a running cluster: verbs with targets by role, and the visible effect of each."""
