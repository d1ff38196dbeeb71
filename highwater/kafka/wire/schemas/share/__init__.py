"""Schemas of share groups' messages (KIP-932), in the versions of Apache Kafka 4.2.

Fields, order, versions and types are facts of the protocol.
"""
