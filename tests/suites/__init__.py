"""The test suites that clients publish, run against a Highwater cluster.

`scripts/client-suites` (this package's `__main__`) gets each suite by name and version, starts the
cluster that it needs, runs it, and compares the failures with `left_out.toml`, which names every
test that is left out, with its reason.  No part of the suites is kept here.
"""
