"""The trio client against the production brokers in a simulation: faults, every record counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

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
