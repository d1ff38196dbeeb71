"""The witness that fits a cluster."""

from __future__ import annotations

from highwater.cluster.faults.witness import Witness
from highwater.cluster.interface import Cluster
from highwater.cluster.leader_moves import addresses
from highwater.verdict.history import LineLog


def witness_of(cluster: Cluster, log: LineLog | None = None) -> Witness:
    """By ZooKeeper where there is one that the harness may ask; else by the brokers' answers."""
    if cluster.zookeeper_connect:
        from highwater.cluster.faults.znode_watch import ZooKeeperWitness

        return ZooKeeperWitness(cluster.zookeeper_connect, log)
    from highwater.cluster.faults.admin_watch import AdminWitness

    direct = addresses(cluster.direct_bootstrap)
    return AdminWitness(dict(zip(cluster.brokers, direct, strict=True)), log)
