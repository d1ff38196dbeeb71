"""The tools of scenarios: a cluster on which one course of events is made to happen.

A scenario is a coroutine that gets a `Stage`.  It starts what it needs, holds or breaks things at
the right moment, and waits for conditions (never only for time).  At the end, by `in_order`, it
names the events that must have happened, in their order: lines of the trace, as `highwater sim
--scenario NAME --trace` prints them.  So a scenario whose events did not happen fails, instead of
passing without having shown anything.  The rules R1-R15 watch all the time.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from highwater.broker.replica.partition import Partition
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import CreateTopicsRequest
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation import wire_tap
from highwater.simulation.cluster import PORT, Shape, SimCluster
from highwater.simulation.last_events import TraceHandler
from highwater.simulation.rules.findings import Violation
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.world.sim import Kernel, SimWorld, run_simulation

PATIENCE_S = 60.0
TP = TopicPartition("t", 0)
C = TypeVar("C", bound=SimClient)


class NotSo(AssertionError):
    """The course of events was not that of the scenario, or ended wrongly."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`what` is one line for people."""

    name: str
    what: str
    shape: Shape
    play: Callable[[Stage], Awaitable[None]]


@dataclass(slots=True)
class Played:
    """The end of a scenario."""

    name: str
    seed: int
    digest: str = ""
    problem: str | None = None
    violation: Violation | None = None
    last_events: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.problem is None and self.violation is None


class _Worst:
    """The chance that lets a power loss take the most."""

    def random(self) -> float:
        return 0.99

    def randint(self, least: int, most: int) -> int:
        return most


class Stage:
    """See the module's docstring."""

    def __init__(self, cluster: SimCluster, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self.rules = cluster.rules
        self.nursery = nursery
        self.client = self.new_client("client")

    # -- what there is --------------------------------------------------------------------------

    def new_world(self, name: str) -> SimWorld:
        return self.cluster.simulation.start(self.cluster.simulation.add_host(name))

    def new_client(self, name: str) -> SimClient:
        return self.new_client_of(SimClient, name)

    def new_client_of(self, kind: type[C], name: str) -> C:
        bootstrap = [(node.name, PORT) for node in self.cluster.nodes.values()]
        return kind(self.new_world(name), name, bootstrap, self.rules.answers)

    async def start(
        self,
        *replicas: int,
        controller: int = 1,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Starts all brokers, one of them first, so that it is the controller; makes topic t with
        these replicas, the first of which leads."""
        self.cluster.start(controller)
        await self.until(lambda: self.cluster.controller() == controller, "there is a controller")
        for broker_id in self.cluster.nodes:
            self.cluster.start(broker_id)
        await self.whole()
        await self.insist(lambda: self.create(TP.topic, list(replicas), partitions, config))
        await self.until(lambda: all(map(self._hosts, replicas)), "the replicas are there")
        await self.whole()

    def _hosts(self, broker: int) -> bool:
        services = self.cluster.nodes[broker].services
        partition = services.replicas.partitions.get(TP) if services is not None else None
        return partition is not None and partition.leader_epoch >= 0

    async def create(
        self,
        topic: str,
        replicas: list[int],
        partitions: int,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a topic, without waiting for its replicas."""
        assignment = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment
        assignments = [
            assignment(partition_index=p, broker_ids=replicas) for p in range(partitions)
        ]
        await self.client.create_assigned(topic, assignments, config)

    # -- waiting --------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], what: str) -> None:
        with trio.move_on_after(PATIENCE_S):
            while not condition():
                await trio.sleep(0.005)
            return
        raise NotSo(f"within {PATIENCE_S:g} s it did not come about that {what}")

    async def whole(self) -> None:
        await self.until(lambda: self.cluster.whole() is None, "every partition has its full ISR")

    async def insist(self, call: Callable[[], Awaitable[object]]) -> None:
        """Calls until it succeeds."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                try:
                    await call()
                    return
                except Failed:
                    await trio.sleep(0.1)
        raise NotSo("a call did not succeed")

    # -- ZooKeeper's view -----------------------------------------------------------------------

    def leader(self, tp: TopicPartition = TP) -> int:
        state = self.rules.partitions[tp].state
        return state.leader if state is not None else -1

    def epoch(self, tp: TopicPartition = TP) -> int:
        state = self.rules.partitions[tp].state
        return state.leader_epoch if state is not None else -1

    def isr(self, tp: TopicPartition = TP) -> tuple[int, ...]:
        state = self.rules.partitions[tp].state
        return tuple(state.isr) if state is not None else ()

    def end(self, broker: int, tp: TopicPartition = TP) -> int:
        """A replica's LEO, by its disk."""
        self.rules.disk_changed(broker)
        return self.rules.replica(self.rules.partitions[tp], broker).mirror.end

    def log(self, broker: int, tp: TopicPartition = TP) -> list[tuple[int, int, int]]:
        """A replica's batches, by its disk: (base offset, leader epoch, CRC)."""
        self.rules.disk_changed(broker)
        mirror = self.rules.replica(self.rules.partitions[tp], broker).mirror
        return [(batch.base, batch.epoch, batch.crc) for batch in mirror.batches]

    def place(self, broker: int) -> tuple[int, int]:
        """The start and the end of a running broker's replica of t-0; -1 where there is none."""
        partition = self._partition(broker)
        log = partition.log if partition is not None else None
        return (log.log_start_offset, log.log_end_offset) if log is not None else (-1, -1)

    def high_watermark(self, broker: int) -> int:
        """As a running broker knows it of t-0; -1 where it has none."""
        partition = self._partition(broker)
        return partition.high_watermark if partition is not None else -1

    def _partition(self, broker: int) -> Partition | None:
        services = self.cluster.nodes[broker].services
        return services.replicas.partitions.get(TP) if services is not None else None

    # -- doing ----------------------------------------------------------------------------------

    async def send(self, value: str, acks: int = -1, *, to: int | None = None) -> int:
        """One attempt, at the leader that ZooKeeper names or at `to`; raises Failed."""
        batch = bytes(build_batch([Record(None, value.encode(), 1_700_000_000_000)]))
        leader = to if to is not None else self.leader()
        if leader < 0:
            raise Failed("LEADER_NOT_AVAILABLE")
        self.client.believe(TP, leader, f"broker-{leader}", PORT)
        return await self.client.produce(TP, batch, acks)

    async def values(self) -> list[str]:
        """All values that the leader gives."""
        found: list[str] = []
        offset, end = 0, None
        with trio.move_on_after(PATIENCE_S):
            while end is None or offset < end:
                try:
                    self.client.forget(TP)
                    end = end if end is not None else await self.client.list_offset(TP, -1)
                    polled = await self.client.fetch(TP, offset)
                except Failed:
                    await trio.sleep(0.1)
                    continue
                found += [value.decode() for _, _, value in polled.records]
                offset = polled.next_offset
            return found
        raise NotSo("the topic cannot be read")

    def cut(self, one: int, other: int) -> None:
        """Cuts the link between two brokers both ways; they still reach all others."""
        a, b = self.cluster.nodes[one].host, self.cluster.nodes[other].host
        self.cluster.simulation.fabric.cut(a, b)
        self.cluster.simulation.fabric.cut(b, a)

    async def lead(self, broker: int, tp: TopicPartition = TP) -> None:
        """Makes a broker the preferred leader and elects it."""
        assigned = self.rules.partitions[tp].assigned
        order = [broker, *(b for b in assigned if b != broker)]
        await self.insist(lambda: self.client.reassign(tp, order))
        await self.insist(lambda: self.client.elect_preferred(tp))
        await self.until(lambda: self.leader(tp) == broker, f"broker {broker} leads")

    async def hold(
        self, api_key: int, what: str, seconds: float, source: int, target: int
    ) -> wire_tap.Hold:
        """Holds a request or its answer; returns when it is held."""
        hold = self.arm(api_key, what, seconds, source, target)
        await self.until(lambda: hold.fired, f"broker {source} asks broker {target} ({api_key})")
        return hold

    def arm(
        self, api_key: int, what: str, seconds: float, source: int, target: int
    ) -> wire_tap.Hold:
        """Arms a hold for the next request of that API from one broker to another."""
        names = (f"broker-{source}", f"broker-{target}")
        return self.cluster.tap.hold(api_key, what, seconds, lambda s, t: (s, t) == names)

    def lose_power(self, broker: int) -> int:
        """Loses power and all unflushed bytes; gives the number of lost offsets of t-0."""
        disk = self.cluster.nodes[broker].host.disk
        before, usual = self.end(broker), disk.random
        disk.random = _Worst()  # type: ignore[assignment]
        self.cluster.power_loss(broker)
        disk.random = usual
        return before - self.end(broker)

    def isolate(self, broker: int) -> None:
        """Cuts a broker from ZooKeeper and the other brokers; clients still reach it."""
        fabric, node = self.cluster.simulation.fabric, self.cluster.nodes[broker]
        others = [n.host for n in self.cluster.nodes.values() if n is not node]
        for other in (*others, self.cluster.simulation.zookeeper.host):
            fabric.cut(node.host, other)
            fabric.cut(other, node.host)

    def heal(self) -> None:
        self.cluster.simulation.fabric.heal_all()

    # -- what must be so ------------------------------------------------------------------------

    def check(self, so: object, what: str) -> None:
        if not so:
            raise NotSo(what)

    async def fails(self, call: Callable[[], Awaitable[object]], *names: str) -> str:
        """The call must fail with one of these errors; gives its name."""
        try:
            await call()
        except Failed as failed:
            if names and failed.name not in names:
                raise NotSo(f"{failed.name} where {names} was due") from failed
            return failed.name
        raise NotSo(f"a call succeeded that must fail with {names or 'an error'}")

    def happened(self, pattern: str) -> bool:
        """Whether a line of the trace so far matches this regular expression."""
        return any(re.search(pattern, line) for line in self.cluster.trace.last(100_000))

    def in_order(self, *patterns: str) -> None:
        """Regular expressions that lines of the trace must match, one after the other."""
        lines = iter(self.cluster.trace.last(100_000))
        for pattern in patterns:
            if not any(re.search(pattern, line) for line in lines):
                raise NotSo(f"it never happened (in this order): {pattern}")

    async def equal_logs(self, brokers: Sequence[int]) -> None:
        """Waits until all replicas hold the same batches."""
        await self.whole()
        await self.until(
            lambda: len({tuple(self.log(b)) for b in brokers}) == 1, "all logs are equal"
        )


def play(scenario: Scenario, seed: int = 1, trace: Callable[[str], None] | None = None) -> Played:
    """Runs a scenario under the rules."""
    played = Played(scenario.name, seed)

    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, scenario.shape, nursery)
            cluster.trace.everything = trace
            handler = TraceHandler(cluster.trace, cluster.mistaken)

            def end() -> None:
                kernel.run_queue.thaw_all()
                nursery.cancel_scope.cancel()

            cluster.rules.on_violation = end
            try:
                await scenario.play(Stage(cluster, nursery))
            except NotSo as problem:
                played.problem = str(problem)
            except Failed as failed:
                played.problem = f"a call failed: {failed}"
            finally:
                handler.detach()
                played.violation = cluster.rules.violation
                played.digest = kernel.digest()
                if not played.ok:
                    played.last_events = cluster.trace.last(30)
            end()

    run_simulation(seed, main)
    return played
