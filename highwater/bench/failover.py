"""`highwater bench failover`: the time without writes to a partition whose leader is killed.

Theory of operation.  Three brokers of the profile `test`, as processes.  Each client (see `writes`)
writes without pause to the one partition of a topic of its own, acks=all, with default settings.
One broker leads all these partitions; it is killed with -9.  For each client the result is the time
from the kill to the end of the longest pause between two acknowledgements that ends after it:
earlier acknowledgements may have been in flight already.  How much of it is the brokers' is told by
the new leader's log.  Then the broker is restarted, and once everything is in sync, the next one is
killed.  Each kill has new clients: one that has seen the last kill may still wait out its back-off
(up to ten seconds in librdkafka) before it tries that broker again.

With `--security` the clients' listener and the brokers' own speak that protocol, and access rules
hold; the harness itself asks on a listener without it.

Three kinds: only the leader dies; the leader dies and is the controller as well; and (`swap`) no
broker dies, and the leader is moved by reassignment and preferred election.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import trio

from highwater.bench.figures.new_leaders import new_leader_s
from highwater.bench.figures.rows import Row
from highwater.bench.figures.sides import BenchFailed, Progress, Side
from highwater.bench.loads.writes import CLIENTS, command, settings_file
from highwater.cluster.ask import metadata
from highwater.cluster.interface import ClusterError, broker
from highwater.cluster.leader_moves import move_leader
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.run_folder import TopicInfo
from highwater.cluster.run_topics import create_topics
from highwater.kafka.types import TopicPartition

LEADER, CONTROLLER, SWAP = "leader", "controller", "swap"
KINDS = {
    LEADER: "kill -9 of a leader",
    CONTROLLER: "kill -9 of controller and leader",
    SWAP: "leader swap",
}
RESUMED_ACKS = 20
SETTLE_S = 0.5
WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Plan:
    kills: int = 30
    their_kills: int = 5
    clients: tuple[str, ...] = CLIENTS
    kinds: tuple[str, ...] = (LEADER, CONTROLLER)
    brokers: int = 3
    backoff_ms: int | None = None
    """The clients' retry.backoff.ms; None: their defaults."""
    security: str = "plaintext"
    """What clients and brokers speak (`client_files.PROTOCOLS`)."""


@dataclass(slots=True)
class Writer:
    """A writer process and its output, with times."""

    client: str
    topic: str
    acks_ns: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    replaced: int = 0
    """Producers that were given up, as nothing came from them (`writes`)."""

    async def run(self, settings: Path, home: Path | None) -> None:
        process = await trio.lowlevel.open_process(
            command(self.client, settings, self.topic, home),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        assert process.stdout is not None
        try:
            rest = b""
            while data := await process.stdout.receive_some(65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._heard(line.decode())
            raise BenchFailed(f"the writer of {self.client} has ended")
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    def _heard(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        if what == "ack":
            self.acks_ns.append(int(rest))
        elif what == "error":
            self.errors.append(rest)
        elif what == "replaced":
            self.replaced += 1

    def pause_ms(self, since_ns: int) -> float:
        """The time from `since` to the end of the longest pause that ends after it."""
        before = [t for t in self.acks_ns if t <= since_ns]
        times = [before[-1] if before else since_ns, *(t for t in self.acks_ns if t > since_ns)]
        _, end = max((b - a, b) for a, b in pairwise(times))
        return (end - since_ns) / 1e6

    def gap_ms(self, since_ns: int) -> float:
        """The longest time between two acknowledgements."""
        times = [t for t in self.acks_ns if t > since_ns]
        return max(b - a for a, b in pairwise(times)) / 1e6


class Bench:
    """One side under load."""

    def __init__(self, cluster: ProcessCluster, plan: Plan, kafka_home: Path | None) -> None:
        self.cluster = cluster
        self.writers = [Writer(client, f"writes-{client}") for client in plan.clients]
        self.pauses_ms: dict[tuple[str, str], list[float]] = {}
        self.led_ms: dict[str, list[float]] = {}
        """From the kill until another broker led the partition."""
        self._home = kafka_home
        how = (cluster.folder, cluster.bootstrap, plan.security)
        self._settings = {
            w.client: settings_file(w.client, *how, plan.backoff_ms) for w in self.writers
        }

    async def once(self, kind: str) -> None:
        leader = await self._place(kind)
        async with trio.open_nursery() as nursery:
            for writer in self.writers:
                writer.acks_ns.clear()
                nursery.start_soon(writer.run, self._settings[writer.client], self._home)
            await self._flowing(time.monotonic_ns())
            await self._break(kind, leader)
            nursery.cancel_scope.cancel()
        if kind != SWAP:
            await self.cluster.start(broker(leader))

    async def _break(self, kind: str, leader: int) -> None:
        settled = time.monotonic_ns() + int(SETTLE_S * 1e9)
        await self._flowing(settled)
        if kind == SWAP:
            await self._swap(leader)
            return
        since, since_s = time.monotonic_ns(), time.time()
        await self.cluster.kill(broker(leader))
        await self._flowing(since)
        folder, others = self.cluster.folder, [n for n in self.cluster.brokers if n != leader]
        logs = [folder / broker(n) / "output.log" for n in others]
        for writer in self.writers:
            self._note(kind, writer, writer.pause_ms(since))
            led = new_leader_s(logs, f"{writer.topic}-0", since_s)
            if led is not None:  # Apache Kafka's logs do not say
                self.led_ms.setdefault(kind, []).append(led * 1000)

    async def _swap(self, leader: int) -> None:
        wanted = next(n for n in self.cluster.brokers if n != leader)
        for writer in self.writers:
            since = time.monotonic_ns()
            await self._move(writer, wanted)
            await self._flowing(time.monotonic_ns())
            self._note(SWAP, writer, writer.gap_ms(since))

    async def _move(self, writer: Writer, wanted: int) -> None:
        place = TopicPartition(writer.topic, 0)
        await move_leader(self.cluster, place, wanted, self.cluster.brokers)

    def _note(self, kind: str, writer: Writer, pause_ms: float) -> None:
        self.pauses_ms.setdefault((kind, writer.client), []).append(pause_ms)

    async def _place(self, kind: str) -> int:
        """Waits until all is in sync and one broker leads every writer's partition; gives its
        number.
        """
        await self._until(self._whole, "all replicas in sync")
        controller = (await self._metadata()).controller_id
        others = [n for n in self.cluster.brokers if n != controller]
        wanted = controller if kind == CONTROLLER else others[0]
        for writer in self.writers:
            await self._move(writer, wanted)

        async def led() -> bool:
            found = (await self._metadata()).topics
            return all(t.partitions[0].leader_id == wanted for t in found)

        await self._until(led, f"broker-{wanted} leads")
        return int(wanted)

    async def _metadata(self) -> Any:
        last: Exception = ClusterError("no broker runs")
        for number in self.cluster.brokers:
            if self.cluster.running(broker(number)):
                try:
                    topics = [w.topic for w in self.writers]
                    return await metadata(self.cluster.address(number), topics)
                except OSError as error:
                    last = error
        raise BenchFailed(f"no broker answers: {last}")

    async def _whole(self) -> bool:
        found = await self._metadata()
        places = [p for t in found.topics for p in t.partitions]
        return (
            found.controller_id in self.cluster.brokers
            and len(places) == len(self.writers)
            and all(len(p.isr_nodes) == min(3, len(self.cluster.brokers)) for p in places)
        )

    async def _flowing(self, since_ns: int) -> None:
        """Waits until every writer has more acknowledgements after that time."""

        async def flows() -> bool:
            return all(
                len(w.acks_ns) >= RESUMED_ACKS and w.acks_ns[-RESUMED_ACKS] > since_ns
                for w in self.writers
            )

        await self._until(flows, "every client writes")

    async def _until(self, condition: Callable[[], Any], what: str) -> None:
        with trio.move_on_after(WAIT_S):
            while not await condition():
                await trio.sleep(0.02)
            return
        acks = {w.client: len(w.acks_ns) for w in self.writers}
        raise BenchFailed(f"not within {WAIT_S} s: {what} (acknowledged: {acks})")


@asynccontextmanager
async def writing(side: Side, plan: Plan, home: Path | None) -> AsyncIterator[Bench]:
    settings = Settings(
        side.folder,
        zookeeper=side.zookeeper,
        brokers=plan.brokers,
        program=side.program,
        security=plan.security,
        secured_links=plan.security != "plaintext",
        properties={"auto.leader.rebalance.enable": "false"},
    )
    async with process_cluster(settings, timeout_s=120) as cluster:
        bench = Bench(cluster, plan, home)
        replicas = min(3, plan.brokers)
        topics = [TopicInfo(w.topic, 1, replicas, min(2, replicas)) for w in bench.writers]
        await create_topics(cluster, topics)
        yield bench


async def run(plan: Plan, sides: Sequence[Side], progress: Progress) -> list[Row]:
    """Gives medians and worst of each client; the first side is Highwater's."""
    home = apache.home() if "java" in plan.clients or len(sides) > 1 else None
    found: list[dict[tuple[str, str], list[float]]] = []
    errors: list[str] = []
    replaced: list[str] = []
    led: dict[str, list[float]] = {}
    for index, side in enumerate(sides):
        times = plan.kills if index == 0 else plan.their_kills
        async with writing(side, plan, home) as bench:
            for kind in plan.kinds:
                for number in range(times):
                    await bench.once(kind)
                    said = ", ".join(
                        f"{w.client} {bench.pauses_ms[kind, w.client][-1]:.0f} ms"
                        for w in bench.writers
                    )
                    if bench.led_ms.get(kind):
                        said += f"; a new leader after {bench.led_ms[kind][-1]:.0f} ms"
                    progress(f"{side.name}, {KINDS[kind]}, {number + 1} of {times}: {said}")
            led.update(bench.led_ms)
            found.append(bench.pauses_ms)
            errors += [f"{side.name}, {w.client}: {e}" for w in bench.writers for e in w.errors[:3]]
            replaced += [
                f"{side.name}, {w.client}" for w in bench.writers for _ in range(w.replaced)
            ]
    for line in errors:
        progress(f"an error reached the application: {line}")
    for who, count in Counter(replaced).items():
        progress(f"{who}: {count} producers were replaced, as they no longer heard of new leaders")
    return _rows(plan, found, led, len(errors), len(replaced))


def spoken(security: str) -> str:
    return "" if security == "plaintext" else f", {security.upper()}"


def _rows(
    plan: Plan,
    found: Sequence[dict[tuple[str, str], list[float]]],
    led: Mapping[str, Sequence[float]],
    errors: int,
    replaced: int,
) -> list[Row]:
    rows = []
    for kind in plan.kinds:
        for client in plan.clients:
            ours, *rest = [side[kind, client] for side in found]
            theirs = rest[0] if rest else []
            what = f"{KINDS[kind]}, {client}{spoken(plan.security)}"
            worst_of = [(max(side),) if side else () for side in (ours, theirs)]
            rows += [
                Row(f"{what}, median", "ms", tuple(ours), tuple(theirs), True),
                Row(f"{what}, worst of {len(ours)}", "ms", worst_of[0], worst_of[1], True),
            ]
    for kind, times in led.items():
        what = f"{KINDS[kind]}, until a new one leads{spoken(plan.security)}"
        rows += [
            Row(f"{what}, median", "ms", tuple(times), (), True),
            Row(f"{what}, worst of {len(times)}", "ms", (max(times),), (), True),
        ]
    rows.append(Row("errors that reached an application", "", (errors,)))
    rows.append(Row("producers that had to be replaced", "", (replaced,)))
    return rows
