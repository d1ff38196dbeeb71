"""Idempotent producers of the compacted topic, whose retries come late.

Two of them write to the same few keys, which nobody else writes to, so that each supersedes what
the other wrote last: the cleaners empty the last batch of a producer that rests, and must keep its
header, by which a broker that reads the log again recognises a retry.  Each sends one batch at a
time, and tries again, with the same sequence, until it is acknowledged.  Now and then it takes no
notice of an answer, rests until failovers and cleaners have been at work, and sends its last batch
once more.

* C2: one log has a batch of a producer and a sequence once; a retry is answered with the offset
  where the batch was acknowledged, or stood committed.  A leader of whose term ZooKeeper says the
  same before a request and after its answer does not refuse it for its sequence.  In the end every
  replica has a batch by which it knows a producer's last sequence.
* C4, C7, C12, C15 are judged with the rest of the topic (`compacted`).

The broker remembers one batch of each producer for certain (a snapshot keeps no more), which is why
none is sent before its predecessor is acknowledged.  What rests on a record that was given up is
excused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation.rules.allowed_losses import losses_of, lost_since
from highwater.simulation.workloads.compacted import (
    COMPACTED,
    TOPIC,
    TP,
    CompactedTopic,
    Deletion,
    KeyedClient,
    name_batch,
)
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.plain_client import STAMP_MS, Failed
from highwater.simulation.workloads.workload import FATAL

if TYPE_CHECKING:
    from collections import Counter

    from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
    from highwater.world.sim import Kernel

NAMES = ("exact-keyed-0", "exact-keyed-1")
_PREFIX, _KEYS = b"exact", 4
_ONCE_MORE, _REST = 0.15, 0.1
_LONG_S = 6.0


class Place(NamedTuple):
    """A place at which a batch was committed.  `losses`: the log's known losses at that time."""

    base: int
    losses: int


@dataclass(slots=True, eq=False)
class ExactBatch:
    """One batch of one sequence, and what is known of it."""

    producer: tuple[int, int]
    sequence: int
    items: list[tuple[bytes, bytes | None]]
    deletions: list[tuple[int, Deletion]]
    data: bytes
    losses: int
    """The log's known losses before the first attempt."""
    stood: list[Place] = field(default_factory=list)
    acked: int | None = None

    def __str__(self) -> str:
        return f"the batch of producer {self.producer[0]}, sequence {self.sequence}"


class ExactKeys:
    """One producer."""

    def __init__(
        self,
        topic: CompactedTopic,
        client: KeyedClient,
        count: Counter[str],
        errors: Counter[str],
        pace: float,
    ) -> None:
        self.topic = topic
        self.book = topic.book
        self._client = client
        self._count = count
        self._errors = errors
        self._pace = pace
        self.last: dict[int, ExactBatch] = {}
        """Producer id -> its last acknowledged batch."""

    async def run(self, rate: float = 12.0) -> None:
        """Sends until cancelled."""
        client, random = self._client, self._client.random
        producer, sequence = await self._producer(), 0
        while True:
            await client.sleep(random.expovariate(rate * self._pace))
            if random.random() < _REST:
                await client.sleep(random.uniform(0, _LONG_S))
            batch = self.make(producer, sequence)
            done = await self._bring_home(batch)
            if done and random.random() < _ONCE_MORE:
                await client.sleep(random.uniform(0, _LONG_S))
                self._count["exact keys: sent once more"] += 1
                done = await self._bring_home(batch)
            sequence += len(batch.items)
            if not done:
                producer, sequence = await self._producer(), 0

    async def _producer(self) -> tuple[int, int]:
        while True:
            try:
                return await self._client.init_producer_id()
            except Failed as failed:
                self._errors[failed.name] += 1
                await self._client.pause()

    def make(self, producer: tuple[int, int], sequence: int) -> ExactBatch:
        items, deletions = self.topic.make(self._client.random, _PREFIX, _KEYS)
        data = build_batch(
            [Record(k, v, STAMP_MS) for k, v in items],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        losses = losses_of(self.book, TP)
        name_batch(deletions, data)
        return ExactBatch(producer, sequence, items, deletions, bytes(data), losses)

    async def _bring_home(self, batch: ExactBatch) -> bool:
        """Repeats a batch until it is acknowledged; False if it is refused for good, as it may be
        after a loss."""
        client, tries = self._client, 0
        while True:
            tries += 1
            before = self._term()
            try:
                base = await client.produce(TP, batch.data, -1)
            except Failed as failed:
                self._errors[failed.name] += 1
                asked = client.known_leader(TP)
                client.forget(TP)
                self.look(batch)
                if failed.name in FATAL:
                    self.refused(
                        batch, failed.name, same=self._term() == before == (asked, before[1])
                    )
                    return False
                await client.pause()
                self.look(batch)
                continue
            self._count["exact keys: acked"] += batch.acked is None
            self._count["exact keys: acked after a retry"] += tries > 1
            self.answered(batch, base)
            return True

    @property
    def _truth(self) -> PartitionTruth:
        return self.book.partitions[TP]

    def _term(self) -> tuple[int, int]:
        """The leader and its epoch, by ZooKeeper."""
        state = self._truth.state
        return (state.leader, state.leader_epoch) if state is not None else (-1, -1)

    def look(self, batch: ExactBatch) -> None:
        """Looks for the batch in every replica's log."""
        truth = self._truth
        for replica in truth.replicas.values():
            bases = [base for base, sequence in self._of(replica, batch.producer[0])
                     if sequence == batch.sequence]  # fmt: skip
            if len(bases) > 1:
                self._broken(f"{batch} stands at {bases} in the log of broker {replica.broker}")
            if replica.broker == self._term()[0]:  # a leader's records below its HW are committed
                losses = losses_of(self.book, TP)
                batch.stood += [Place(base, losses) for base in bases if base < truth.exposed]

    def _of(self, replica: Replica, producer_id: int) -> Iterator[tuple[int, int]]:
        """Base offset and sequence of this producer's batches in a log."""
        for batch in replica.mirror.batches:
            if batch.producer_id == producer_id:
                yield batch.base, batch.base_sequence

    def answered(self, batch: ExactBatch, base: int) -> None:
        """Takes an acknowledgement, the first one or another."""
        known = [place.base for place in batch.stood if not self._lost(place)]
        if batch.acked is not None and not self._lost(Place(batch.acked, batch.losses)):
            known.append(batch.acked)
        if any(place != base for place in known):
            self._broken(f"{batch} is answered with offset {base}, and stood at {known}")
        self.topic.acknowledged(base, batch.items, batch.losses)
        for at, deletion in batch.deletions if batch.acked is None else ():
            deletion.offset, deletion.acked_s = base + at, self.book.now()
        batch.acked = base
        self.last[batch.producer[0]] = batch
        self.look(batch)

    def refused(self, batch: ExactBatch, error: str, *, same: bool) -> None:
        """Takes a refusal for its sequence; `same`: the leader that was asked led before and after,
        in one term, so its log has all that was acknowledged."""
        self._count["exact keys: refused"] += 1
        last = self.last.get(batch.producer[0])
        lost = last is not None and last.acked is not None and self._lost(
            Place(last.acked, last.losses)
        )  # fmt: skip
        if same and not lost:
            self._broken(f"{batch} is refused: {error}; its predecessor was acknowledged")

    def _lost(self, place: Place) -> bool:
        return lost_since(self.book, TP, place.base, place.losses)

    def judge(self) -> None:
        """Looks for the last batch of each producer id, emptied or not, on every replica."""
        for producer_id, last in self.last.items():
            assert last.acked is not None
            self.look(last)
            if self._lost(Place(last.acked, last.losses)):
                continue
            for replica in self._truth.replicas.values():
                newest = max((s for _, s in self._of(replica, producer_id)), default=-1)
                if replica.mirror.exists and newest < last.sequence:
                    self._broken(f"{last} is not on broker {replica.broker}, nor a later one")
                self._count["exact keys: looked for"] += 1

    def _broken(self, what: str) -> None:
        self.book.broken("C2", f"{TP}: {what}")


class Compacted(Part):
    """The compacted topic with all of its producers."""

    flag = "compacted"
    help = "A compacted topic, and its cleaners, too."
    topics = (Topic(COMPACTED, config=TOPIC),)
    maker = "maker"
    client_kind = KeyedClient

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        size = kernel.random("internal segments").choice((None, 2000))
        return {"cleaner_backoff_ms": 700, "internal_segment_bytes": size}

    @classmethod
    def of(cls, shared: Shared) -> Self:
        small = shared.cluster.shape.internal_segment_bytes is not None
        shared.cluster.rules.compacted |= {COMPACTED, *(INTERNAL_TOPICS if small else ())}
        return super().of(shared)

    def __post_init__(self) -> None:
        self._topic = CompactedTopic(self.rules)
        self._exact: list[ExactKeys] = []

    def clients(self) -> Works:
        return {"producer-keyed": self._topic.produce, **dict.fromkeys(NAMES, self._produce)}

    async def _produce(self, client: KeyedClient) -> None:
        producer = ExactKeys(self._topic, client, self.count, self.errors, self.pace)
        self._exact.append(producer)
        await producer.run()

    async def look(self, shared: Shared) -> None:
        found = await self._topic.read_all(shared.client(KeyedClient, "keyed"))
        self._topic.judge(found, shared.cluster)
        for producer in self._exact:
            producer.judge()
