"""The clients of a simulated run, each of which knows its promises."""
