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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.new_leaders import new_leader_s
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import BenchFailed, Side, Sides
from highwater.bench.loads.writes import CLIENTS, command, settings_file
from highwater.cluster.ask import metadata
from highwater.cluster.client_files import PROTOCOLS
from highwater.cluster.interface import broker
from highwater.cluster.leader_moves import move_leader, reachable
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.cluster.run_folder import TopicInfo
from highwater.cluster.run_topics import create_topics
from highwater.kafka.types import TopicPartition

LEADER, CONTROLLER, SWAP = "leader", "controller", "swap"
KINDS = {
    LEADER: "kill -9 of a leader",
    CONTROLLER: "kill -9 of controller and leader",
    SWAP: "leader swap",
}
LED = "until a new one leads"
RESUMED_ACKS = 20
SETTLE_S = 0.5
WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Options:
    kills: int = option(30, "Of ours.", least=1)
    their_kills: int = option(5, "Of the other.", least=1)
    clients: tuple[str, ...] = option(
        CLIENTS, "All write at the same time.", flag="--client", of=CLIENTS
    )
    swap: bool = option(False, "Move the leader, and kill no broker.")
    backoff_ms: int | None = option(
        None,
        "The clients'.  [default: their own defaults, 100]",
        flag="--retry-backoff-ms",
        least=0,
    )
    security: str = option(
        "plaintext", "What clients speak, and brokers among themselves.", of=PROTOCOLS
    )
    no_controller: bool = option(False, "Leave out the kills of the controller.")

    @property
    def kinds(self) -> tuple[str, ...]:
        return (SWAP,) if self.swap else (LEADER, CONTROLLER)[: 2 - self.no_controller]

    def section(self, _against: str | None) -> tuple[str, str]:
        """The name and the heading of the section of a page."""
        name, title = "failover", "## A leader is killed"
        if self.swap:
            name, title = "swap", "## A leader is moved"
        if self.backoff_ms is not None:
            name += " with retry.backoff.ms"
            title += f", retry.backoff.ms={self.backoff_ms}"
        if self.security != "plaintext":
            name, title = f"{name} by {self.security}", title + spoken(self.security)
        return f"bench {name}", title

    def lines(self) -> list[Line]:
        """For each kind the pauses of each client's writes, and from the kill until another broker
        led, which Apache Kafka's logs do not say."""
        found = []
        pauses = [(kind, client, self.kills) for kind in self.kinds for client in self.clients]
        led = [(kind, LED, self.kills * len(self.clients)) for kind in self.kinds]
        for kind, who, times in [*pauses, *led]:
            what = f"{KINDS[kind]}, {who}{spoken(self.security)}"
            found.append(Line(f"{kind} {who}", f"{what}, median", "ms"))
            found.append(Line(f"{kind} {who} worst", f"{what}, worst of {times}", "ms"))
        found.append(Line("errors", "errors that reached an application", ""))
        found.append(Line("replaced", "producers that had to be replaced", ""))
        return found


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

    def __init__(self, cluster: ProcessCluster, options: Options, kafka_home: Path | None) -> None:
        self.cluster = cluster
        self.writers = [Writer(client, f"writes-{client}") for client in options.clients]
        self.pauses_ms: dict[str, list[float]] = {}
        """By kind and client; with LED: from the kill until another broker led the partition."""
        self._home = kafka_home
        how = (cluster.folder, cluster.bootstrap, options.security)
        self._settings = {
            w.client: settings_file(w.client, *how, options.backoff_ms) for w in self.writers
        }

    async def once(self, kind: str) -> str:
        """Breaks the leader once; says what came of it."""
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
        who = (*(writer.client for writer in self.writers), LED)
        found = [(w, self.pauses_ms[f"{kind} {w}"]) for w in who if f"{kind} {w}" in self.pauses_ms]
        return ", ".join(f"{name} {times[-1]:.0f} ms" for name, times in found)

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
            self._note(kind, writer.client, writer.pause_ms(since))
            led = new_leader_s(logs, f"{writer.topic}-0", since_s)
            if led is not None:  # Apache Kafka's logs do not say
                self._note(kind, LED, led * 1000)

    async def _swap(self, leader: int) -> None:
        wanted = next(n for n in self.cluster.brokers if n != leader)
        for writer in self.writers:
            since = time.monotonic_ns()
            await self._move(writer, wanted)
            await self._flowing(time.monotonic_ns())
            self._note(SWAP, writer.client, writer.gap_ms(since))

    async def _move(self, writer: Writer, wanted: int) -> None:
        place = TopicPartition(writer.topic, 0)
        await move_leader(self.cluster, place, wanted, self.cluster.brokers)

    def _note(self, kind: str, who: str, ms: float) -> None:
        self.pauses_ms.setdefault(f"{kind} {who}", []).append(ms)

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
        for _, address in reachable(self.cluster):
            with suppress(OSError):
                return await metadata(address, [writer.topic for writer in self.writers])
        raise BenchFailed("no broker answers")

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


def spoken(security: str) -> str:
    return "" if security == "plaintext" else f", {security.upper()}"


async def run(options: Options, sides: Sides) -> Table:
    return sides.table(options.lines(), await measure(options, sides))


async def measure(options: Options, sides: Sides) -> Samples:
    """Milliseconds by kind and client: all of them, and the worst."""

    async def load(cluster: ProcessCluster, side: Side) -> dict[str, Sequence[float]]:
        ours = side is sides.ours
        times = options.kills if ours else options.their_kills
        bench = Bench(cluster, options, home)
        topics = [TopicInfo(writer.topic, 1, 3, 2) for writer in bench.writers]
        await create_topics(cluster, topics)
        for kind in options.kinds:
            for number in range(times):
                said = await bench.once(kind)
                sides.progress(f"{side.name}, {KINDS[kind]}, {number + 1} of {times}: {said}")
        for writer in bench.writers:
            for error in writer.errors[:3]:
                sides.progress(f"an error reached the application: {writer.client}: {error}")
            if writer.replaced:
                sides.progress(
                    f"{side.name}, {writer.client}: {writer.replaced} producers were replaced, as "
                    "they no longer heard of new leaders"
                )
        counts["errors"] += sum(len(writer.errors[:3]) for writer in bench.writers)
        counts["replaced"] += sum(writer.replaced for writer in bench.writers)
        worst = {f"{name} worst": [max(found)] for name, found in bench.pauses_ms.items()}
        return {**bench.pauses_ms, **worst}

    home = apache.home() if "java" in options.clients or sides.theirs else None
    counts = Counter({"errors": 0, "replaced": 0})
    samples = await sides.alone(
        load,
        profile="test",
        properties={"auto.leader.rebalance.enable": "false"},
        security=options.security,
        secured_links=options.security != "plaintext",
    )
    for name, count in counts.items():
        samples.add(name, 0, count)
    return samples
