"""Members of a share group at leaders that die: what a member was told is accepted never comes
again, and every record is accepted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import ShareAcknowledgeRequest, ShareFetchRequest
from highwater.kafka.wire.records import Record, build_batch
from highwater.simulation.cluster import SimCluster
from highwater.simulation.workloads.plain_client import Failed, SimClient
from tests.simulation.test_client import Clients, simulate
from tests.simulation.test_share_groups import TOPIC, Share

ACCEPT, RELEASE = 1, 2
TP = TopicPartition(TOPIC, 0)
PAUSE_S = 0.1


class Book:
    """What the members and the producer know."""

    def __init__(self) -> None:
        self.sent: set[int] = set()
        self.got: dict[int, int] = {}
        """By offset, the highest delivery count."""
        self.accepted: set[int] = set()
        self.unknown: set[int] = set()
        """Acceptances without an answer, which may count."""
        self.released = 0

    @property
    def left(self) -> set[int]:
        return self.sent - self.accepted - self.unknown


class Member:
    """Fetches from the partition's leader, and accepts or releases what it gets."""

    def __init__(self, client: SimClient, name: str, topic_id: UUID, book: Book) -> None:
        self._client = client
        self._name = name
        self._id = topic_id
        self._book = book
        self._epoch = 0

    async def run(self) -> None:
        while True:
            try:
                address, _ = await self._client._leader(TP)
                await self._step(address)
            except Failed:
                self._epoch = 0
                self._client.forget(TP)
                await trio.sleep(PAUSE_S)

    async def _step(self, address: tuple[str, int]) -> None:
        topic = ShareFetchRequest.FetchTopic
        part = topic.FetchPartition(partition_index=0, acknowledgement_batches=[])
        request = ShareFetchRequest(
            group_id="g", member_id=self._name, share_session_epoch=self._epoch, max_wait_ms=500,
            min_bytes=1, max_bytes=1 << 20, max_records=20, batch_size=20,
            topics=[topic(topic_id=self._id, partitions=[part])] if not self._epoch else [],
            forgotten_topics_data=[],
        )  # fmt: skip
        answer = await self._client._call(address, request, 2)
        ranges = [
            (a.first_offset, a.last_offset, a.delivery_count)
            for p in self._read(answer)
            for a in p.acquired_records
        ]
        if ranges:
            await self._acknowledge(address, ranges)

    def _read(self, answer: Any) -> list[Any]:
        parts = [p for t in answer.responses for p in t.partitions]
        code = answer.error_code or next((p.error_code for p in parts if p.error_code), 0)
        if code:
            raise Failed(str(code))
        self._epoch += 1
        return parts

    async def _acknowledge(
        self, address: tuple[str, int], ranges: list[tuple[int, int, int]]
    ) -> None:
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        part, batches = topic.AcknowledgePartition, []
        accepting: list[int] = []
        for first, last, count in ranges:
            types = []
            for offset in range(first, last + 1):
                assert offset not in self._book.accepted, f"{offset} comes again"
                self._book.got[offset] = max(count, self._book.got.get(offset, 0))
                accepts = count > 2 or self._client.random.random() < 0.7
                types.append(ACCEPT if accepts else RELEASE)
                accepting += [offset] if accepts else []
            batches.append(
                part.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=types
                )
            )
        parts = [part(partition_index=0, acknowledgement_batches=batches)]
        request = ShareAcknowledgeRequest(
            group_id="g", member_id=self._name, share_session_epoch=self._epoch,
            topics=[topic(topic_id=self._id, partitions=parts)],
        )  # fmt: skip
        self._book.unknown.update(accepting)
        answer = await self._client._call(address, request, 2)
        self._read(answer)
        self._book.unknown.difference_update(accepting)
        self._book.accepted.update(accepting)
        self._book.released += sum(last - first + 1 for first, last, _ in ranges) - len(accepting)


async def produce(client: SimClient, book: Book, scope: trio.CancelScope) -> None:
    """Only records whose Produce was answered are known to be there."""
    data = bytes(build_batch([Record(None, b"job", 1)] * 5))
    with scope:
        while True:
            try:
                base = await client.produce(TP, data, -1)
                book.sent.update(range(base, base + 5))
            except Failed:
                client.forget(TP)
            await trio.sleep(PAUSE_S)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leaders_die_and_nothing_acknowledged_comes_back(seed: int) -> None:
    books: list[Book] = []

    async def scenario(cluster: SimCluster, clients: Clients) -> None:
        share, book = Share(cluster), Book()
        books.append(book)
        await share.begin(clients)
        topic_id = UUID(bytes=share.id)
        assert not (await share.services(1).persister.initialize(share.key(0), 0, 0)).error
        async with trio.open_nursery() as nursery:
            producing = trio.CancelScope()
            nursery.start_soon(produce, clients.admin(), book, producing)
            for name in ("a", "b", "c"):
                nursery.start_soon(Member(clients.admin(), name, topic_id, book).run)
            for number in range(9):
                await _goes_on(book)
                leader, keeper = share.leader(TOPIC, 0), share.keeper(0)
                if number % 3 < 2:
                    cluster.kill((leader, keeper)[number % 3])
                    await _goes_on(book)
                else:  # the leader goes with its first answer after the coordinator's death
                    cluster.kill(keeper)
                    await _goes_on(book, 1)
                    cluster.kill(leader)
                for broker in (leader, keeper):
                    cluster.start(broker)
                while cluster.whole() is not None:
                    await trio.sleep(0.1)
            producing.cancel()
            with trio.fail_after(120):
                while book.left:
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    simulate(scenario, seed)
    (book,) = books
    assert book.released > 10
    assert max(book.got.values()) > 1
    assert len(book.accepted) > 100


async def _goes_on(book: Book, count: int = 20) -> None:
    """Waits until so many more records are accepted."""
    wanted = len(book.accepted) + count
    with trio.fail_after(60):
        while len(book.accepted) < wanted:
            await trio.sleep(0.001)
