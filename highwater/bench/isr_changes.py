"""How long one leader takes to change the ISR of many partitions at once.

For `highwater bench control`.  All partitions have the same leader and the same follower.  The
follower stands still while each partition gets a record, until it has left every ISR; then it goes
on, and comes back into each of them.  The leader writes both changes of a partition to ZooKeeper, a
few partitions at a time.  ZooKeeper itself notes when each znode was written: the figure is the
time from the first of these writes to the last, in whole milliseconds.  So neither the lag that a
follower is allowed is part of it, nor the way of the news to brokers and clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from highwater.bench.figures.sides import until
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.znode_writes import connected
from highwater.cluster.ask import metadata
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition

AT_ONCE = 200
PROPERTIES = {
    "replica.lag.time.max.ms": "500",
    "zookeeper.session.timeout.ms": "9000",
}
"""A follower that stands still leaves the ISR soon, and long before its session ends."""
_TOPIC = "isr-changes"
_TURNS = 3
_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1


async def spans_ms(cluster: ProcessCluster) -> list[float]:
    """Milliseconds from the first to the last write of each of 2 * _TURNS times.

    Raises BenchFailed where an ISR does not change.
    """
    controller = (await metadata(cluster.address(cluster.brokers[0]), [])).controller_id
    leader, follower = [n for n in cluster.brokers if n != controller][:2]
    places = [leader, controller, follower]
    await create_topic(cluster.bootstrap, _TOPIC, AT_ONCE, 3, {}, places)
    found = []
    for _ in range(_TURNS):
        await cluster.pause(broker(follower))
        try:
            await trio.to_thread.run_sync(_write, cluster.address(leader))
            await _until_isrs(cluster, leader, follower, are_in=False)
            found.append(await trio.to_thread.run_sync(_span_ms, cluster.zookeeper_connect))
        finally:
            await cluster.resume(broker(follower))
        await _until_isrs(cluster, leader, follower, are_in=True)
        found.append(await trio.to_thread.run_sync(_span_ms, cluster.zookeeper_connect))
    return found


def _write(address: tuple[str, int]) -> None:
    """One record to each partition: a follower without new records to fetch does not lag."""
    from confluent_kafka import Producer

    servers = "{}:{}".format(*address)
    producer = Producer({"bootstrap.servers": servers, "acks": "1", "log_level": 0})
    for partition in range(AT_ONCE):
        producer.produce(_TOPIC, b"record", partition=partition)
    producer.flush(_WITHIN_S)


async def _until_isrs(cluster: ProcessCluster, leader: int, follower: int, *, are_in: bool) -> None:
    """Waits until all ISRs, or none, have the follower; asks its leader."""

    async def all_have() -> bool:
        answer = await metadata(cluster.address(leader), [_TOPIC], timeout_s=10)
        isrs = [place.isr_nodes for place in answer.topics[0].partitions]
        return all((follower in isr) == are_in for isr in isrs)

    what = f"broker-{follower} is {'in' if are_in else 'out of'} {AT_ONCE} ISRs"
    await until(all_have, what, _WITHIN_S, _LOOK_EVERY_S)


def _span_ms(connect: str) -> float:
    with connected(connect) as client:
        paths = [znodes.state_path(TopicPartition(_TOPIC, n)) for n in range(AT_ONCE)]
        asked = [client.exists_async(path) for path in paths]
        return span_ms([one.get(_WITHIN_S) for one in asked])


def span_ms(stats: Sequence[Any]) -> float:
    """Milliseconds between the first and the last of these znodes' last changes."""
    times = [stat.mtime for stat in stats]
    return float(max(times) - min(times))
