"""This broker's copy of the cluster's metadata, from the controller: brokers, leaders, topics."""
