"""`highwater bench all`: every row of the comparison with Apache Kafka, in one command."""
