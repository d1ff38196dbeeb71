"""`highwater bench rebalance`: the time that some partition of a group has no owner.

One group of librdkafka's consumers on three brokers, while records come in all the time.  It is
measured by the members' own clocks, which are the machine's:

* leave: from a member's goodbye until every partition has been assigned again;
* crash: the same from kill -9 on; the session time-out is part of it;
* coordinator: from the kill -9 of the group's coordinator until every member has committed again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.rows import Line, Table
from highwater.bench.figures.sides import BenchFailed, Progress, Side, Sides, until
from highwater.bench.loads.bench_topics import admin_client, create_topic
from highwater.broker.coordinator.shard import partition_for
from highwater.chaos.workloads.group_run import GroupRun
from highwater.client_calls import SOON_S, apart, within
from highwater.cluster.client_files import Way
from highwater.cluster.interface import broker
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import ProcessCluster

TOPIC, GROUP = "bench-rebalance", "bench"
SESSION_MS = 6000
"""Of the members, or, with the consumer protocol, of the brokers in the profile `test`."""
PROTOCOLS = ("classic", "consumer")
PATIENCE_S = 90
POLL_S = 0.1


_START: dict[str, Any] = {
    "profile": "test",
    "properties": {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        # a moved coordinator gives every member a new session, the dead one as well
        "auto.leader.rebalance.enable": "false",
    },
    "quick_end": True,
}


@dataclass(frozen=True, slots=True)
class Options:
    members: int = option(8, least=3, most=100)
    partitions: int = option(24, least=1, most=500)
    rounds: int = option(3, least=1)
    protocol: str = option("classic", "Of the group (consumer: KIP-848).", of=PROTOCOLS)

    def lines(self) -> list[Line]:
        one = f"one of {self.members} members"
        return [
            Line("leave", f"{one} leaves", "s"),
            Line("crash", f"{one} is killed, session of {SESSION_MS} ms", "s"),
            Line("coordinator", "the coordinator is killed, until all have committed", "s"),
        ]


async def run(options: Options, sides: Sides) -> Table:
    if options.protocol == "consumer" and f"Apache Kafka {apache.VERSION}" == sides.theirs:
        raise BenchFailed(f"{sides.theirs} has no groups of KIP-848: give --against apache:4.2.0")

    async def load(cluster: ProcessCluster, side: Side) -> dict[str, list[float]]:
        return await _Bench(options, cluster, side.name, sides.progress).measure()

    return sides.table(options.lines(), await sides.alone(load, **_START))


class _Bench:
    """One side."""

    def __init__(
        self, options: Options, cluster: ProcessCluster, name: str, progress: Progress
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.name = name
        self.progress = progress
        self.seconds: dict[str, list[float]] = {"leave": [], "crash": [], "coordinator": []}
        self.group = GroupRun(
            cluster.folder / "members",
            Way(bootstrap=cluster.direct_bootstrap),
            GROUP,
            TOPIC,
            "confluent-kafka",
            SESSION_MS,
            options.protocol,
        )

    async def measure(self) -> dict[str, list[float]]:
        bootstrap, config = self.cluster.direct_bootstrap, {"min.insync.replicas": "2"}
        partitions = self.options.partitions
        await create_topic(bootstrap, TOPIC, partitions, 3, config)
        try:
            async with producing(bootstrap, partitions):
                for number in range(self.options.rounds):
                    await self._round(number)
        finally:
            self.group.end()
        return self.seconds

    async def _round(self, number: int) -> None:
        group = self.group
        while len(group.members) < self.options.members:
            group.join()
        await self._until(self._balanced, "the members share the partitions")
        leaver = next(iter(group.members))
        group.members[leaver].process.terminate()
        name = group.members[leaver].member.process
        await self._until(lambda: not group.members[leaver].alive, "the member leaves")
        group.crash(leaver)
        await self._until(self._balanced, "the others share the partitions")
        began = max(line["t_ns"] for line in group.lines()
                    if line["f"] == "leaving" and line["process"] == name)  # fmt: skip
        self._note("leave", began)

        began = time.monotonic_ns()
        group.crash(next(iter(group.members)))
        await self._until(self._balanced, "the others share the partitions")
        self._note("crash", began)

        coordinator = await trio.to_thread.run_sync(_coordinator, self.cluster.direct_bootstrap)
        began = time.monotonic_ns()
        await self.cluster.kill(broker(coordinator))
        await self._until(lambda: self._committed(began), "every member commits again")
        last = max(self._first_commits(began).values())
        self.seconds["coordinator"].append((last - began) / 1e9)
        await self.cluster.start(broker(coordinator))
        said = ", ".join(f"{name} {values[-1]:.2f} s" for name, values in self.seconds.items())
        self.progress(f"round {number + 1} of {self.options.rounds}: {self.name} {said}")

    def _note(self, name: str, began: int) -> None:
        """Notes the time until the last member knew its new partitions."""
        ends = [
            line["t_ns"] for line in self.group.lines()
            if line["f"] == "assigned_all" and line["t_ns"] > began
        ]  # fmt: skip
        self.seconds[name].append((max(ends) - began) / 1e9)

    def _balanced(self) -> bool:
        owners = self.group.owners()
        wanted = min(len(self.group.members), self.options.partitions)
        return len(owners) == self.options.partitions and len(set(owners.values())) == wanted

    def _first_commits(self, since: int) -> dict[str, int]:
        begun = {
            (line["process"], line["op"]) for line in self.group.lines()
            if line["f"] == "commit" and line["type"] == "invoke" and line["t_ns"] > since
        }  # fmt: skip
        found: dict[str, int] = {}
        for line in self.group.lines():
            done = line["f"] == "commit" and line["type"] == "ok"
            if done and (line["process"], line["op"]) in begun:
                found.setdefault(line["process"], line["t_ns"])
        return found

    def _committed(self, since: int) -> bool:
        names = {running.member.process for running in self.group.members.values()}
        return names <= self._first_commits(since).keys()

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        whether = partial(trio.to_thread.run_sync, holds)
        await until(whether, f"{self.name}: {what}", PATIENCE_S, POLL_S)


@asynccontextmanager
async def producing(bootstrap: str, partitions: int) -> AsyncIterator[None]:
    """Produces a record to each partition, some ten times a second."""
    from confluent_kafka import Producer

    stop = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        number = 0
        while not stop.wait(0.1):
            for partition in range(partitions):
                number += 1
                producer.produce(TOPIC, f"v{number}".encode(), partition=partition)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        with trio.CancelScope(shield=True):
            await apart("ending the producer", SOON_S, thread.join)


def _coordinator(bootstrap: str) -> int:
    """The leader of the only partition of __consumer_offsets."""
    name = "__consumer_offsets"
    ask = admin_client(bootstrap).list_topics
    found = within("asking for the coordinator", 30 + SOON_S, ask, name, 30).topics[name].partitions
    return int(found[partition_for(GROUP, len(found))].leader)
