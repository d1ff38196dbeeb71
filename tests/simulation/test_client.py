"""The trio client against the production brokers in a simulation: faults, every record counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from highwater.broker.replica.fetch_sessions import FetchSession
from highwater.kafka.client.consumer import Consumer
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.producer import Delivery, Outcome, Producer
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import PORT, Shape, SimCluster
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.world.sim import Kernel, SimWorld, run_simulation

Scenario = Callable[[SimCluster, "Clients"], Awaitable[None]]


class Clients:
    """Makes clients on machines of their own."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._names = Counter[str]()

    def cluster(self, name: str) -> Cluster:
        world = self._machine(name)
        return Cluster(world, self._bootstrap(), name, request_timeout_s=3.0, connect_timeout_s=2.0)

    def admin(self) -> SimClient:
        return SimClient(self._machine("admin"), "admin", self._bootstrap())

    def _machine(self, name: str) -> SimWorld:
        self._names[name] += 1
        host = self._cluster.simulation.add_host(f"{name}-{self._names[name]}")
        return self._cluster.simulation.start(host)

    def _bootstrap(self) -> list[tuple[str, int]]:
        return [(node.name, PORT) for node in self._cluster.nodes.values()]


def simulate(scenario: Scenario, seed: int = 1) -> str:
    """Runs it; returns the digest of all events."""
    digest = ""

    async def main(kernel: Kernel) -> None:
        nonlocal digest
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Shape(brokers=3, min_isr=2), nursery)
            for broker_id in cluster.nodes:
                cluster.start(broker_id)
            with trio.fail_after(600):
                await whole(cluster)
                await scenario(cluster, Clients(cluster))
            assert cluster.rules.violation is None
            digest = cluster.kernel.digest()
            nursery.cancel_scope.cancel()

    run_simulation(seed, main)
    return digest


async def whole(cluster: SimCluster) -> None:
    while cluster.whole() is not None:
        await trio.sleep(0.1)


async def read_all(
    consumer: Consumer, tps: list[TopicPartition]
) -> dict[TopicPartition, list[tuple[int, bytes]]]:
    """Reads everything up to the present end offsets."""
    ends = await consumer.offsets(tps)
    consumer.assign(dict.fromkeys(tps))
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in tps}
    while any((consumer.position(tp) or 0) < ends[tp][0] for tp in tps):
        for fetch in await consumer.poll(5):
            for record in fetch.records:
                assert record.leader_epoch <= fetch.leader_epoch
                assert record.offset < fetch.high_watermark
                found[fetch.tp].append((record.offset, record.value or b""))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_exactly_once_in_order_through_kills_and_swaps(seed: int) -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("producer")
        admin = clients.admin()
        await admin.create_topic("t", 3, 3)
        with pytest.raises(Failed, match="TOPIC_ALREADY_EXISTS"):
            await admin.create_topic("t", 3, 3)
        await whole(cluster)
        deliveries: dict[bytes, Delivery] = {}
        producer = Producer(
            shared, request_timeout_s=3.0, delivery_timeout_s=100.0, batch_bytes=300
        )
        tps = [TopicPartition("t", p) for p in range(3)]

        async def produce() -> None:
            for n in range(400):
                value = b"%d" % n
                report = partial(deliveries.__setitem__, value)
                await producer.send("t", value, partition=n % 3, report=report)
                await trio.sleep(0.02 if n % 10 == 0 else 0)

        async def break_things() -> None:
            for n in range(3):
                await trio.sleep(0.25)
                victim = cluster.leader_of(tps[n]) or 1
                cluster.kill(victim)
                await trio.sleep(2)
                cluster.start(victim)
                await whole(cluster)
                again = clients.admin()  # what it had open to the victim has ended
                for tp in tps:
                    await again.elect_preferred(tp)

        async with trio.open_nursery() as running:
            await running.start(producer.run)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                nursery.start_soon(produce)
            await producer.flush()
            running.cancel_scope.cancel()
        assert len(deliveries) == 400
        assert Counter(d.outcome for d in deliveries.values()) == {Outcome.ACKED: 400}
        read = await read_all(Consumer(clients.cluster("consumer")), tps)
        for tp in tps:
            values = [int(value) for _, value in read[tp]]
            assert values == list(range(tp.partition, 400, 3))
            for offset, value in read[tp]:
                assert deliveries[value].offset == offset
                assert deliveries[value].tp == tp

    simulate(scenario, seed)


def test_unknown_and_failed_are_told_apart() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("producer")
        await clients.admin().create_topic("t", 1, 3)
        await whole(cluster)
        producer = Producer(shared, request_timeout_s=2.0, delivery_timeout_s=4.0)
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            first = await (await producer.send("t", b"first")).wait()
            assert first.outcome is Outcome.ACKED
            assert first.producer_id >= 0
            assert (first.sequence, first.offset) == (0, 0)
            big = await (await producer.send("t", b"x" * 1_500_000)).wait()
            assert big.outcome is Outcome.FAILED
            assert big.error is ErrorCode.MESSAGE_TOO_LARGE
            leader = cluster.leader_of(TopicPartition("t", 0))
            for broker_id in cluster.nodes:
                if broker_id != leader:
                    cluster.freeze(broker_id)
            lost = await (await producer.send("t", b"lost")).wait()
            assert lost.outcome is Outcome.UNKNOWN
            for broker_id in cluster.nodes:
                cluster.thaw(broker_id)
            await whole(cluster)
            after = await (await producer.send("t", b"after")).wait()
            assert after.outcome is Outcome.ACKED
            running.cancel_scope.cancel()

    simulate(scenario)


def test_acks_0_and_1_and_what_the_partitioner_chooses() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("producer")
        await clients.admin().create_topic("t", 4, 2)
        await whole(cluster)
        for acks in (0, 1):
            producer = Producer(shared, acks=acks)
            async with trio.open_nursery() as running:
                await running.start(producer.run)
                receipts = [await producer.send("t", b"v", b"key%d" % n) for n in range(20)]
                found = [await receipt.wait() for receipt in receipts]
                wanted = Outcome.ACKED if acks else Outcome.UNKNOWN
                assert {d.outcome for d in found} == {wanted}
                assert len({d.tp for d in found}) > 1
                running.cancel_scope.cancel()
        tps = [TopicPartition("t", p) for p in range(4)]
        read = await read_all(Consumer(clients.cluster("consumer"), read_committed=True), tps)
        assert sum(map(len, read.values())) == 40

    simulate(scenario)


def sessions_of_consumers(cluster: SimCluster) -> list[tuple[int, FetchSession]]:
    """With the brokers that have them."""
    return [
        (node.id, session)
        for node in cluster.nodes.values()
        if node.services is not None
        for session in node.services.replicas.sessions._sessions.values()
        if isinstance(session, FetchSession)
    ]


class Reading:
    """A consumer of four partitions, and a producer that writes where it is told to."""

    def __init__(self, clients: Clients, producer: Producer, tps: list[TopicPartition]) -> None:
        self.consumer = Consumer(clients.cluster("consumer"), max_wait_ms=100)
        self.consumer.assign(dict.fromkeys(tps, 0))
        self.found: dict[TopicPartition, list[bytes]] = {tp: [] for tp in tps}
        self.named: Counter[TopicPartition] = Counter()
        """How often an answer had a partition."""
        self._producer = producer
        self._sent = dict.fromkeys(tps, 0)

    async def write(self, *tps: TopicPartition) -> None:
        for tp in tps:
            value = b"%d" % self._sent[tp]
            sent = await self._producer.send(tp.topic, value, partition=tp.partition)
            assert (await sent.wait()).outcome is Outcome.ACKED
            self._sent[tp] += 1

    async def read(self) -> None:
        """Everything that was written, in order and once."""
        with trio.fail_after(30):
            while any(len(self.found[tp]) < n for tp, n in self._sent.items()):
                await self.poll()
        for tp, n in self._sent.items():
            assert self.found[tp] == [b"%d" % number for number in range(n)]

    async def poll(self) -> None:
        for fetch in await self.consumer.poll(1):
            self.named[fetch.tp] += 1
            self.found[fetch.tp] += [record.value or b"" for record in fetch.records]


async def reads(cluster: SimCluster, clients: Clients, work: Callable[[Reading], Any]) -> None:
    await clients.admin().create_topic("t", 4, 3)
    await whole(cluster)
    producer = Producer(clients.cluster("producer"), request_timeout_s=3.0)
    async with trio.open_nursery() as running:
        await running.start(producer.run)
        await work(Reading(clients, producer, [TopicPartition("t", p) for p in range(4)]))
        running.cancel_scope.cancel()


def test_a_consumer_has_a_fetch_session_with_each_leader() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        async def work(reading: Reading) -> None:
            tps = list(reading.found)
            await reading.write(*tps, *tps)
            await reading.read()
            leaders = Counter(cluster.leader_of(tp) for tp in tps)
            sessions = sessions_of_consumers(cluster)
            assert {broker: len(s.partitions) for broker, s in sessions} == leaders
            for _ in range(5):  # until all their HWs have been told
                await reading.poll()
            reading.named.clear()
            before = {session.id: session.epoch for _, session in sessions}
            for _ in range(20):
                await reading.write(tps[0])
                await reading.read()
            assert set(reading.named) == {tps[0]}, "nothing else has changed"
            after = {session.id: session.epoch for _, session in sessions_of_consumers(cluster)}
            assert set(after) == set(before)
            assert all(after[number] > before[number] for number in after)

        await reads(cluster, clients, work)

    simulate(scenario)


@pytest.mark.parametrize("how", ["dropped", "killed", "swapped"])
def test_a_session_that_is_over_begins_again(how: str) -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        async def work(reading: Reading) -> None:
            tps = list(reading.found)
            for _ in range(3):
                await reading.write(*tps)
                await reading.read()
                before = {session.id for _, session in sessions_of_consumers(cluster)}
                assert before
                victim = cluster.leader_of(tps[0])
                assert victim is not None
                if how == "dropped":
                    for broker, session in sessions_of_consumers(cluster):
                        services = cluster.nodes[broker].services
                        assert services is not None
                        services.replicas.sessions.close(session)
                elif how == "killed":
                    cluster.kill(victim)
                    await trio.sleep(0.1)
                    cluster.start(victim)
                else:
                    admin = clients.admin()
                    others = [n for n in cluster.nodes if n != victim]
                    await admin.reassign(tps[0], [*others, victim])
                    await admin.elect_preferred(tps[0])
                await whole(cluster)
                await reading.write(*reversed(tps))
                await reading.read()
                after = {session.id for _, session in sessions_of_consumers(cluster)}
                assert after
                assert how == "swapped" or not before <= after

        await reads(cluster, clients, work)

    simulate(scenario)


def test_an_assignment_in_the_middle_of_a_fetch_loses_nothing() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        async def work(reading: Reading) -> None:
            tps = list(reading.found)
            await reading.write(*tps)
            await reading.read()
            for turn in range(5):
                assert not await reading.consumer.poll(0.03), "a fetch is in flight"
                position = reading.consumer.position(tps[0])
                reading.consumer.assign({tps[0]: position})
                await reading.write(*[tps[0]] * 2)
                while len(reading.found[tps[0]]) < 3 + 4 * turn:
                    await reading.poll()
                everything = {tp: len(reading.found[tp]) for tp in tps}
                reading.consumer.assign(everything)
                await reading.write(*tps, tps[0])
                await reading.read()

        await reads(cluster, clients, work)

    simulate(scenario)


def test_the_same_seed_gives_the_same_run() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("producer")
        await clients.admin().create_topic("t", 2, 3)
        producer = Producer(shared)
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            for n in range(50):
                await producer.send("t", b"%d" % n)
            await producer.flush()
            running.cancel_scope.cancel()

    assert simulate(scenario, 5) == simulate(scenario, 5)
    assert simulate(scenario, 5) != simulate(scenario, 6)
