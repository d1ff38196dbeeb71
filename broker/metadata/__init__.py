"""What this broker knows of the cluster, as the controller tells it: brokers, leaders, topics."""
