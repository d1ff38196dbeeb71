"""Damaged input: requests, record batches and files, made with the schemas
in mind, and then damaged.  CI runs a slice of it; `scripts/long fuzz` runs many."""
