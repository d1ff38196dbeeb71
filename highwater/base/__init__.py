"""What every room may use, and which knows nothing of Kafka."""
