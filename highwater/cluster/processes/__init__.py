"""The process runtime: ZooKeeper and brokers, Highwater's or Apache Kafka's, as processes here."""
