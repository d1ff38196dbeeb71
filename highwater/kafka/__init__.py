"""Kafka's definitions: types, error codes, znodes, messages, configuration; and a client."""
