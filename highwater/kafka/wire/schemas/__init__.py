"""Schemas of the four APIs of ZooKeeper-era Kafka that kafka-python does not carry.

Fields, order, versions and types are facts of the protocol; versions stop where
inter.broker.protocol.version 2.6 stops.
"""
