"""Clusters that the harness can start, break and mend: one set of verbs, several runtimes."""
