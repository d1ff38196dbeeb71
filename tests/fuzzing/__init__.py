"""Damaged input: requests, record batches, files and znodes, made with the schemas in mind, and
then damaged.  CI replays the inputs that found something (`corpus`) and runs a slice of new ones;
`scripts/long fuzz` runs many."""
