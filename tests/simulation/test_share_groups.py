"""Share groups on three brokers: each asks whichever of them has the state of a share-partition."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.admin.topic_znodes import auto_create
from highwater.broker.coordinator.group.consumer.heartbeats import Beat, Heartbeat
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.broker.share.persister import SharePartitionKey, StateAnswer, StateBatch
from highwater.kafka import features
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import SimCluster
from tests.simulation.test_client import Clients, simulate

GROUPS, STATES, TOPIC = "__consumer_offsets", "__share_group_state", "shared"
PARTITIONS = 4


@pytest.fixture(autouse=True)
def announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features.SUPPORTED, features.SHARE_VERSION, 1)


class Share:
    """The calls of a test, each by any broker."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.id = b""

    async def begin(self, clients: Clients) -> None:
        admin = clients.admin()
        await admin.create_topic(TOPIC, PARTITIONS, 3)
        services = self.services(1)
        await auto_create(services, GROUPS)
        while not all(
            n.services.metadata.topic_id(TOPIC).strip(b"\0") and n.services.groups.has_share_groups
            for n in self.cluster.nodes.values()
            if n.services
        ):
            await trio.sleep(0.1)
        self.id = services.metadata.topic_id(TOPIC)

    def services(self, broker: int) -> Any:
        return self.cluster.nodes[broker].services

    def leader(self, topic: str, partition: int) -> int:
        running = next(n for n in self.cluster.nodes.values() if n.services is not None)
        found = running.services.metadata.leader_of(TopicPartition(topic, partition))  # type: ignore[union-attr]
        return int(found)

    def key(self, partition: int) -> SharePartitionKey:
        return SharePartitionKey("g", self.id, partition)

    def keeper(self, partition: int) -> int:
        """The share coordinator of a share-partition."""
        running = next(n for n in self.cluster.nodes.values() if n.services is not None)
        place = running.services.share_states.partition_of(str(self.key(partition)))  # type: ignore[union-attr]
        return self.leader(STATES, place.partition)

    async def beat(self, member: str, epoch: int) -> Beat:
        """A heartbeat to whichever broker coordinates the group."""
        request = Heartbeat(member, epoch, topics=(TOPIC,) if epoch == 0 else None)
        while True:
            coordinator = self.leader(GROUPS, 0)
            answer = (
                await self._beat(self.services(coordinator), request) if coordinator > 0 else None
            )
            if answer is not None and not answer.error:
                return answer
            await trio.sleep(0.2)

    async def _beat(self, services: Any, request: Heartbeat) -> Beat | None:
        answers: list[Beat] = []
        answered = trio.Event()

        def render(answer: Any) -> Response:
            answers.append(answer)
            answered.set()
            return Response()

        ticket = Waiting(render)
        try:
            services.groups.share_heartbeat("g", request, ticket)
        except ApiError as e:
            return Beat(e.code)
        services.purgatories.submit(ticket, lambda _: None)
        with trio.move_on_after(10):
            await answered.wait()
        return answers[0] if answers else None


def test_every_broker_reads_and_writes_the_same_state() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        share = Share(cluster)
        await share.begin(clients)
        for partition in range(PARTITIONS):
            key = share.key(partition)
            made = await share.services(1 + partition % 3).persister.initialize(key, 0, 5)
            assert made == StateAnswer()
        for broker in (1, 2, 3):
            persister = share.services(broker).persister
            async with trio.open_nursery() as nursery:
                for partition in range(PARTITIONS):
                    batch = StateBatch(4 + broker, 4 + broker, 2, 1)
                    nursery.start_soon(
                        persister.write, share.key(partition), 0, 0, 5, broker, [batch]
                    )
        for broker in (1, 2, 3):
            for partition in range(PARTITIONS):
                read = await share.services(broker).persister.read(share.key(partition), 0)
                assert (read.error, read.start_offset) == (ErrorCode.NONE, 5)
                assert read.batches == (StateBatch(5, 7, 2, 1),)
        assert {share.keeper(p) for p in range(PARTITIONS)} != {1}, "others were asked, too"

    assert simulate(scenario) == simulate(scenario)


def test_state_outlives_its_coordinator() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        share = Share(cluster)
        await share.begin(clients)
        key = share.key(0)
        asker = share.services(1).persister
        assert not (await asker.initialize(key, 0, 0)).error
        keeper = share.keeper(0)
        asker = share.services(1 + keeper % 3).persister
        assert not (await asker.read(key, 3)).error
        assert not (await asker.write(key, 0, 3, 0, 1, [StateBatch(0, 0, 2, 1)])).error
        results: list[StateAnswer] = []

        async def write() -> None:
            for offset in range(1, 20):
                batch = StateBatch(offset, offset, 2, 1)
                results.append(await asker.write(key, 0, 3, 0, 1, [batch]))
                await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(0.1)
            assert len(results) < 19
            cluster.kill(keeper)
        assert share.keeper(0) != keeper
        lost = [i for i, answer in enumerate(results, 1) if answer.error]
        read = await asker.read(key, 3)
        known = {o for b in read.batches for o in range(b.first_offset, b.last_offset + 1)}
        assert known >= set(range(20)) - set(lost), "what was answered is there"
        assert len(lost) <= 1, results
        fenced = await asker.read(key, 2)
        assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH

    simulate(scenario)


def test_a_group_is_assigned_what_its_coordinators_brokers_keep() -> None:
    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        share = Share(cluster)
        await share.begin(clients)
        told = await share.beat("a", 0)
        while not told.assignment:
            await trio.sleep(0.3)
            told = await share.beat("a", told.epoch)
        assert told.assignment == {share.id: frozenset(range(PARTITIONS))}
        coordinator = share.leader(GROUPS, 0)
        cluster.kill(coordinator)
        while share.leader(GROUPS, 0) == coordinator:
            await trio.sleep(0.2)
        again = await share.beat("a", told.epoch)
        assert (again.epoch, again.assignment) == (told.epoch, None), "nothing has changed"

    simulate(scenario)
