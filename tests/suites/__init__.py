"""The test suites that clients publish, run against a Highwater cluster.

`scripts/client-suites` (this package's `__main__`) gets each suite by name and version, starts the
cluster that it wants, runs it, and compares what failed with `left_out.toml`: every test that is
left out is named there with its reason.  Nothing of the suites is kept here.
"""
