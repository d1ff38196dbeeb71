"""What Kafka defines: types, error codes, znodes, messages, configuration; and a client."""
