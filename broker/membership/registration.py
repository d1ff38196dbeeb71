"""Registers a broker as /brokers/ids/N, and takes over the znode that a dead predecessor left.

A killed process leaves its registration until its ZooKeeper session ends, seconds later.  Apache
Kafka refuses to start meanwhile.  Here the same broker, started again, takes over the stale znode
with one multi that deletes and creates it.  That is safe, because it is certainly the same broker:
it holds the lock on its log directories, their meta.properties name this cluster and this broker id
(both checked before), and it has bound the very endpoints that the znode names, so that no other
process can be serving there.  In any other case the start ends with one clear line.

The czxid of the znode is the broker epoch (KIP-380): it distinguishes the controller's requests to
this life of the broker from those to earlier ones.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING

from highwater.broker.log.checkpoints import META_PROPERTIES, decode_properties
from highwater.kafka import znodes
from highwater.kafka.types import BrokerEpoch, BrokerId, Endpoint
from highwater.world.api import Create, Delete, Disk, NodeExists, NoNode, World, ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

Stored = tuple[str, str] | None
"""A log directory and the cluster that it belongs to."""


class BrokerError(Exception):
    """Ends the broker; the message is one line for the user, with the cause and the remedy."""


class StartError(BrokerError):
    """Raised when the broker cannot start."""


class HaltError(BrokerError):
    """Raised when the broker cannot go on: it stops as if killed, and marks nothing as clean."""


async def make_paths(zk: ZooKeeper, more: Sequence[str] = ()) -> None:
    """Creates Kafka's persistent znodes, with their parents, if they are missing."""
    for path in (*znodes.PERSISTENT_PATHS, *more):
        await make_path(zk, path)


async def make_path(zk: ZooKeeper, path: str, data: bytes = b"") -> None:
    try:
        await zk.create(path, data)
    except NodeExists:
        pass
    except NoNode:
        await make_path(zk, path.rpartition("/")[0])
        await make_path(zk, path, data)


async def cluster_id(zk: ZooKeeper, world: World) -> str:
    """/cluster/id; the first broker makes it: 16 random bytes in base64 without padding."""
    found = await existing_cluster_id(zk)
    if found is None:
        raw = world.random.getrandbits(128).to_bytes(16, "big")
        fresh = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        await make_path(zk, znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
        found = znodes.decode_cluster_id((await zk.get(znodes.CLUSTER_ID))[0])
    return found


async def existing_cluster_id(zk: ZooKeeper) -> str | None:
    """/cluster/id, or None if no cluster was founded here."""
    try:
        data, _ = await zk.get(znodes.CLUSTER_ID)
    except NoNode:
        return None
    return znodes.decode_cluster_id(data)


async def check_cluster(zk: ZooKeeper, connect: str, running_in: str, stored: Stored) -> None:
    """Refuses a ZooKeeper that does not know this broker's cluster, before anything is written.

    Such a ZooKeeper has lost its data, or is another one.  To found a new cluster there would shut
    out every broker whose logs belong to the old one.
    """
    known = running_in or (stored[1] if stored else "")
    if not known:
        return
    found = await existing_cluster_id(zk)
    if found == known:
        return
    there = f"leads to cluster {found}" if found else "leads to no cluster"
    remedy = "restore ZooKeeper's data, correct zookeeper.connect, or start with new log.dirs"
    if running_in or stored is None:
        raise HaltError(
            f"this broker belongs to cluster {known}, and zookeeper.connect={connect} {there}: "
            f"{remedy}"
        )
    raise StartError(
        f"log directory {stored[0]} belongs to cluster {known}, and zookeeper.connect={connect} "
        f"{there}: {remedy}"
    )


def stored_cluster(disk: Disk, log_dirs: Sequence[str]) -> Stored:
    """The first log directory whose meta.properties names a cluster, and that cluster."""
    for log_dir in log_dirs:
        path = f"{log_dir}/{META_PROPERTIES}"
        try:
            if disk.exists(path):
                cluster = decode_properties(disk.read_all(path)).get("cluster.id")
                if cluster:
                    return log_dir, cluster
        except OSError:
            continue  # loading reports which directory cannot be used
    return None


async def register(
    zk: ZooKeeper,
    world: World,
    broker_id: BrokerId,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    features: Mapping[str, int],
) -> BrokerEpoch:
    """Creates /brokers/ids/N and returns the broker epoch; StartError if another broker has it."""
    path = znodes.broker_path(broker_id)
    data = znodes.encode_broker(endpoints, rack, world.clock.wall_ms(), features=features)
    while True:
        try:
            _, stat = await zk.create(path, data, ephemeral=True)
            return BrokerEpoch(stat.czxid)
        except NodeExists:
            try:
                epoch = await _take_over(zk, path, data, broker_id, endpoints)
            except (NoNode, NodeExists):
                continue  # it expired, or was replaced, just now: look again
            if epoch is not None:
                return epoch


async def _take_over(
    zk: ZooKeeper, path: str, data: bytes, broker_id: BrokerId, endpoints: Sequence[Endpoint]
) -> BrokerEpoch | None:
    found, stat = await zk.get(path)
    if stat.ephemeral_owner == zk.session_id:
        return BrokerEpoch(stat.czxid)
    there = znodes.decode_broker(broker_id, found, BrokerEpoch(stat.czxid))
    if set(there.endpoints) != set(endpoints):
        at = ", ".join(f"{e.host}:{e.port}" for e in there.endpoints)
        raise StartError(
            f"broker.id {broker_id} is registered by {at}: stop that broker, wait until its "
            "ZooKeeper session has ended, or give this one another broker.id"
        )
    log.info(
        "taking over /brokers/ids/%d, which session 0x%x left behind",
        broker_id,
        stat.ephemeral_owner,
    )
    await zk.multi([Delete(path, stat.version), Create(path, data, ephemeral=True)])
    _, fresh = await zk.get(path)
    return BrokerEpoch(fresh.czxid) if fresh.ephemeral_owner == zk.session_id else None
