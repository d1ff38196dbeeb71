"""Real clients against a running cluster.  A package, so that its fixtures end with it."""
