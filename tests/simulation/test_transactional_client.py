"""The transactional trio client against the production brokers in a simulation."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from highwater.kafka.client.admin import Admin
from highwater.kafka.client.consumer import Consumer
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.transactions import State, TransactionalProducer
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import OffsetFetchRequest
from highwater.simulation.cluster import SimCluster
from tests.simulation.test_client import Clients, read_all, simulate, whole

TPS = [TopicPartition("t", p) for p in range(3)]


async def values(clients: Clients, *, committed: bool) -> list[list[bytes]]:
    """Of each partition, in order."""
    consumer = Consumer(clients.cluster("reader"), read_committed=committed, max_wait_ms=100)
    found = await read_all(consumer, TPS)
    return [[value for _, value in found[tp]] for tp in TPS]


async def transact(producer: TransactionalProducer, number: int, *, commit: bool) -> bool:
    """One record in each partition; whether it was committed."""
    producer.begin()
    try:
        for tp in TPS:
            await producer.send("t", b"%d" % number, partition=tp.partition)
            await producer.send("t", b"%d" % number, partition=tp.partition)
        if commit:
            await producer.commit()
            return True
    except ApiError as error:
        if error.code is not ErrorCode.TRANSACTION_ABORTABLE:
            raise
    await producer.abort()
    return False


async def kill_in_turn(cluster: SimCluster, victims: tuple[int, ...]) -> None:
    for victim in victims:
        await trio.sleep(1)
        cluster.kill(victim)
        await trio.sleep(2)
        cluster.start(victim)
        await whole(cluster)


@pytest.mark.parametrize("seed", range(3))
def test_whole_transactions_through_kills(seed: int) -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("producer")
        await Admin(shared).create_topic("t", partitions=3, replication_factor=3)
        await whole(cluster)
        producer = TransactionalProducer(
            shared, "id", request_timeout_s=3.0, delivery_timeout_s=30.0
        )
        committed: list[bytes] = []

        async def produce() -> None:
            await producer.init()
            for number in range(60):
                if await transact(producer, number, commit=number % 4 != 3):
                    committed.append(b"%d" % number)
                await trio.sleep(0.05)

        async with trio.open_nursery() as running:
            await running.start(producer.run)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                nursery.start_soon(kill_in_turn, cluster, (1, 2, 3, 1))
            running.cancel_scope.cancel()
        assert len(committed) >= 40
        seen = await values(clients, committed=True)
        assert seen == [[v for value in committed for v in (value, value)]] * 3
        everything = await values(clients, committed=False)
        assert all(len(some) < len(all_) for some, all_ in zip(seen, everything, strict=True))

    simulate(scenario, seed)


async def committed_offset(shared: Cluster, group: str, tp: TopicPartition) -> int:
    """What the group's coordinator says, once no transaction is open on it; -1: nothing."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(
        name=tp.topic, partition_indexes=[tp.partition]
    )
    request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)
    while True:
        await shared.ensure([])
        for node in sorted(shared.nodes):
            with suppress(OSError):
                answer = await shared.call(node, request, 7)
                if answer.error_code == ErrorCode.NONE:
                    (partition,) = answer.topics[0].partitions
                    if partition.error_code == ErrorCode.NONE:
                        return int(partition.committed_offset)
        await trio.sleep(0.1)


@pytest.mark.parametrize("seed", range(2))
def test_offsets_count_with_the_records_of_their_transaction(seed: int) -> None:
    """Consume, transform, produce (KIP-98): output and position agree through every kill."""

    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("copier")
        await Admin(shared).create_topic("t", partitions=3, replication_factor=3)
        await whole(cluster)
        copier = TransactionalProducer(shared, "copier", request_timeout_s=3.0)
        copied: list[bytes] = []
        aborted = 0

        async def one(position: int, *, commit: bool) -> bool:
            copier.begin()
            try:
                await copier.send("t", b"%d" % position, partition=0)
                await copier.send_offsets("copiers", {TPS[1]: position + 1})
                if commit:
                    await copier.commit()
                    return True
            except ApiError as error:
                if error.code is not ErrorCode.TRANSACTION_ABORTABLE:
                    raise
            await copier.abort()
            return False

        async def copy() -> None:
            nonlocal aborted
            await copier.init()
            for round_ in range(40):
                if await one(len(copied), commit=round_ % 4 != 3):
                    copied.append(b"%d" % len(copied))
                else:
                    aborted += 1
                assert await committed_offset(shared, "copiers", TPS[1]) == len(copied)

        async with trio.open_nursery() as running:
            await running.start(copier.run)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(copy)
                nursery.start_soon(kill_in_turn, cluster, (1, 2, 3))
            running.cancel_scope.cancel()
        assert len(copied) >= 20
        assert aborted >= 10
        assert (await values(clients, committed=True))[0] == copied

    simulate(scenario, seed)


def test_a_newcomer_fences_and_aborts() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        old_cluster = clients.cluster("old")
        await Admin(old_cluster).create_topic("t", partitions=3, replication_factor=3)
        await whole(cluster)
        old = TransactionalProducer(old_cluster, "id")
        new = TransactionalProducer(clients.cluster("new"), "id")
        async with trio.open_nursery() as running:
            await running.start(old.run)
            await running.start(new.run)
            await old.init()
            assert await transact(old, 1, commit=True)
            old.begin()
            await (await old.send("t", b"lost", partition=0)).wait()
            await new.init()
            with pytest.raises(ApiError) as refused:
                await old.commit()
            assert refused.value.code is ErrorCode.PRODUCER_FENCED
            assert old.state is State.FENCED
            assert await transact(new, 2, commit=True)
            running.cancel_scope.cancel()
        assert await values(clients, committed=True) == [[b"1", b"1", b"2", b"2"]] * 3

    simulate(scenario)


def test_a_transaction_that_is_left_alone_is_aborted() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        shared = clients.cluster("producer")
        await Admin(shared).create_topic("t", partitions=3, replication_factor=3)
        await whole(cluster)
        producer = TransactionalProducer(shared, "id", timeout_ms=3000)
        reader = Consumer(clients.cluster("reader"), read_committed=True, max_wait_ms=100)
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            await producer.init()
            producer.begin()
            await (await producer.send("t", b"forgotten", partition=0)).wait()
            assert (await reader.offsets(TPS))[TPS[0]][0] == 0  # the LSO
            await trio.sleep(6)
            assert (await reader.offsets(TPS))[TPS[0]][0] == 2
            with pytest.raises(ApiError) as refused:
                await producer.commit()
            assert refused.value.code is ErrorCode.PRODUCER_FENCED
            running.cancel_scope.cancel()
        assert await values(clients, committed=True) == [[], [], []]

    simulate(scenario)


def test_states() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        producer = TransactionalProducer(clients.cluster("producer"), "id")
        with pytest.raises(RuntimeError, match="call init"):
            producer.begin()
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            await producer.init()
            with pytest.raises(RuntimeError, match="call begin"):
                await producer.send("t", b"")
            producer.begin()
            await producer.commit()  # an empty one: nobody is asked
            with pytest.raises(RuntimeError, match="ready"):
                await producer.init()
            running.cancel_scope.cancel()

    simulate(scenario)
