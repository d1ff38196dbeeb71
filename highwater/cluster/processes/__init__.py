"""The process runtime: ZooKeeper and brokers, ours or Apache Kafka's, as processes here."""
