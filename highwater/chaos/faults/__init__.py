"""The faults of a run: schedules from a seed or a file, the verbs that need its workload, and proof
that each fault had an effect."""
