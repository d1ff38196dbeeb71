"""The reach of seeds in the product: errors, transitions, branches, pairs of events, rooms.

`branches` rewrites the pure machines as they are imported, `taps` listens at a few doors of one
simulation, and `reached` adds seeds up.  Nothing here changes the course of a seed.
"""
