"""`highwater bench share-failover`: the time until a share group's members get records again.

A group (KIP-932) of librdkafka's share consumers on three brokers, while records come in all the
time.  A broker is killed, and the clock runs until each partition has given a record that was
written after that:

* leader: the broker leads a partition of the topic, and not the share coordinator's;
* coordinator: the share coordinator, whose state must be stored before anything is answered.

The first one ends with a fetch from the new leader, which has read the state from the coordinator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.rows import Line, Table
from highwater.bench.figures.sides import BenchFailed, Progress, Side, Sides, until
from highwater.bench.loads.bench_topics import admin_client, create_topic
from highwater.client_calls import SOON_S, apart, within
from highwater.cluster.interface import broker
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import ProcessCluster

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer

TOPIC, GROUP, STATE = "bench-share", "bench", "__share_group_state"
PATIENCE_S = 60
RECONNECT_MS = 200
"""librdkafka's own pause before it connects again grows up to ten seconds, with each death."""
_START: dict[str, Any] = {
    "profile": "test",
    "properties": {
        "share.coordinator.state.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "auto.leader.rebalance.enable": "false",
    },
    "quick_end": True,
}


@dataclass(frozen=True, slots=True)
class Options:
    members: int = option(3, least=1, most=20)
    partitions: int = option(6, least=2, most=100)
    rounds: int = option(5, least=1)

    def lines(self) -> list[Line]:
        until_all = f"killed, until {self.partitions} partitions give again"
        return [
            Line("leader", f"a partition's leader is {until_all}", "s"),
            Line("coordinator", f"the share coordinator is {until_all}", "s"),
        ]


async def run(options: Options, sides: Sides) -> Table:
    if f"Apache Kafka {apache.VERSION}" == sides.theirs:
        raise BenchFailed(f"{sides.theirs} has no share groups: give --against apache:4.2.0")

    async def load(cluster: ProcessCluster, side: Side) -> dict[str, list[float]]:
        return await _measure(options, cluster, side.name, sides.progress)

    return sides.table(options.lines(), await sides.alone(load, **_START))


class _Group:
    """Members and a producer in threads; keeps of each record that was given when it had been
    written, and when it was given (monotonic, ns), by partition."""

    def __init__(self, options: Options, bootstrap: str) -> None:
        self.options = options
        self.bootstrap = bootstrap
        self._given: dict[int, list[tuple[int, int]]] = {p: [] for p in range(options.partitions)}
        self.failed: list[str] = []
        """Why a member or the producer has ended."""
        self._over = threading.Event()
        works = [self._produce, *[self._consume] * options.members]
        self._threads = [
            threading.Thread(target=self._work, args=(work,), daemon=True) for work in works
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failed.append(f"{type(error).__name__}: {error}")

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "log_level": 0,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": RECONNECT_MS,
            }
        )
        while not self._over.wait(0.05):
            for place in range(self.options.partitions):
                producer.produce(TOPIC, f"{time.monotonic_ns()}", partition=place)
            producer.poll(0)
        producer.flush(10)

    def _consume(self) -> None:
        from confluent_kafka import ShareConsumer

        member: ShareConsumer = ShareConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "log_level": 0,
                "reconnect.backoff.max.ms": RECONNECT_MS,
            }
        )
        member.subscribe([TOPIC])
        while not self._over.is_set():
            for message in member.poll(0.2) or ():
                if message.error() is None:
                    written = int(message.value() or b"0")
                    self._given[message.partition()].append((written, time.monotonic_ns()))
        member.close()

    def first_after(self, moment: int) -> list[int] | None:
        """When each partition first gave a record written after `moment`; None until all have."""
        firsts = [
            min((given for written, given in list(found) if written > moment), default=0)
            for found in self._given.values()
        ]
        return firsts if all(firsts) else None

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@asynccontextmanager
async def _group(options: Options, bootstrap: str) -> AsyncIterator[_Group]:
    group = _Group(options, bootstrap)
    try:
        yield group
    finally:
        with trio.CancelScope(shield=True):
            await apart("ending the members", SOON_S, group.end)


async def _measure(
    options: Options, cluster: ProcessCluster, name: str, progress: Progress
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"leader": [], "coordinator": []}
    bootstrap = cluster.direct_bootstrap
    await create_topic(bootstrap, TOPIC, options.partitions, 3, {"min.insync.replicas": "2"})
    async with _group(options, bootstrap) as group:
        for number in range(options.rounds):
            for what in seconds:
                await _gives_all(group, f"{name}: all partitions give")
                leaders = await trio.to_thread.run_sync(_leaders, bootstrap)
                coordinator = leaders[STATE][0]
                others = [each for each in leaders[TOPIC] if each != coordinator]
                victim = broker(coordinator if what == "coordinator" else others[0])
                began = time.monotonic_ns()
                await cluster.kill(victim)
                firsts = await _gives_all(group, f"{name}: all give without {victim}")
                seconds[what].append((max(firsts) - began) / 1e9)
                await cluster.start(victim)
            said = ", ".join(f"{what} {values[-1]:.2f} s" for what, values in seconds.items())
            progress(f"round {number + 1} of {options.rounds}: {name} {said}")
    return seconds


async def _gives_all(group: _Group, what: str) -> list[int]:
    """Waits until each partition has given a record that was written after this call."""
    now = time.monotonic_ns()

    def all_gave() -> bool:
        if group.failed:
            raise BenchFailed(f"{what}: a client has ended: {group.failed[0]}")
        return group.first_after(now) is not None

    await until(partial(trio.to_thread.run_sync, all_gave), what, PATIENCE_S)
    return group.first_after(now) or []


def _leaders(bootstrap: str) -> dict[str, list[int]]:
    """The leaders of the partitions of the topic, and of the share coordinator's."""
    ask = admin_client(bootstrap).list_topics
    found = within("asking for the leaders", 30 + SOON_S, ask, None, 30).topics
    return {
        name: [found[name].partitions[p].leader for p in sorted(found[name].partitions)]
        for name in (TOPIC, STATE)
    }
