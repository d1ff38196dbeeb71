"""The faults of a simulated run: random ones, and those of several acts."""
