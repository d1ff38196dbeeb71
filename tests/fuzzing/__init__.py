"""Damaged input: requests, record batches, files, znodes, logins, TLS handshakes and HTTP, made
with their forms in mind, and then damaged.  CI replays the inputs that found something (`corpus`)
and runs a slice of new ones; `scripts/long fuzz` runs many."""
