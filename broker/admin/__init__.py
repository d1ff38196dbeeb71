"""What the administrative APIs share: topics and their names, placement, configuration, producer
ids.

Pure modules first (`topic_names`, `assignment`, `topic_config`, `broker_config`); `topics`,
`configs`, `producer_ids` and `dynamic_config` reach ZooKeeper through the broker's session.
"""
