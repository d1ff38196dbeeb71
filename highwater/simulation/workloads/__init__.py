"""The clients of a simulated run, each of which knows what it was promised."""
