"""A Kafka client for trio: brokers, controller, harness and simulation speak with it."""
