"""Highwater: a Kafka-compatible cluster that one person can run, break and check."""
