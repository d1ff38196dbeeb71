"""Schemas of the four APIs of ZooKeeper-era Kafka that kafka-python does not carry.

Fields, order, versions and types are facts of the protocol; versions stop where
inter.broker.protocol.version 2.6 stops.  Tagged fields from 10000 on are Highwater's own: topic ids
and features in use, in messages whose versions have none.  Who does not know a tag passes it over.
"""
