"""Faults: verbs with targets by role, schedules from a seed or a file, and proof that each had an
effect."""
