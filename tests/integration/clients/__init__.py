"""Real clients against a running cluster; a package, so that its fixtures end with it."""
