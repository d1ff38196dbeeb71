"""A compacted topic in the simulated workload, and its rules.

It has few keys, unique values, a tombstone now and then, and segments so small that the cleaners of
all replicas are at work all the time, each at its own pace.  The batch-by-batch rules do not apply:
replicas rightly hold different batches (R5: compacted topics are compared by surviving records).
The producer here has no producer id; those of `exact_keys` have one.  These checks run instead,
after the last read:

* C4: each key has its last acknowledged record, or a later one.  A later tombstone may be gone,
  if it was committed; for one that was not acknowledged, the checker knows that by its batch.
* C15: a key whose last acknowledged record is a tombstone does not come back with an older value.
* C7, C12: the record at an offset is the one acknowledged there, sent with that key.
* R5: every replica, read from its disk, says the same of each key.

A record that a careless power loss took (`PartitionTruth.given_up`) after it was sent is no longer
required, and its offset may be acknowledged once more.  A record acknowledged there after that loss
is required again.

A replica that is away for longer than delete.retention.ms misses a tombstone, and keeps the value
before it, if a follower that has not heard of its absence cleans meanwhile, and leads when it is
back.  That alone is excused, and only for a tombstone that was not acknowledged before the replica
left the ISR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import trio

from highwater.broker.log.checkpoints import CLEANER_OFFSETS, MalformedFileError, decode_offsets
from highwater.kafka.client.connection import RequestTimedOut
from highwater.kafka.errors import ErrorCode
from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch, parse_fetch_answer
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import batches, build_batch, records_of
from highwater.simulation.rules.allowed_losses import losses_of, lost_since
from highwater.simulation.workloads.plain_client import FETCH_VERSION, TIMEOUT_S, Failed, SimClient

if TYPE_CHECKING:
    from random import Random

    from highwater.simulation.cluster import SimCluster
    from highwater.simulation.rules.findings import Book
    from highwater.world.sim.disk import SimDisk

COMPACTED = "compacted"
TP = TopicPartition(COMPACTED, 0)
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3000",
}
DELETE_RETENTION_S = int(TOPIC["delete.retention.ms"]) / 1000
KEYS = 12
Found = dict[int, tuple[bytes, bytes | None]]
"""Offset -> key and value."""


class Acked(NamedTuple):
    """An acknowledged record.  `losses`: the log's known losses when it was sent."""

    key: bytes
    value: bytes | None
    losses: int = 0

    @property
    def item(self) -> tuple[bytes, bytes | None]:
        return self.key, self.value


@dataclass
class Deletion:
    """A tombstone that was sent.  Times: s, virtual; without an answer it may be in the log."""

    sent_s: float
    acked_s: float = inf
    offset: int | None = None
    crc: int = 0
    """The CRC of its batch."""

    def missed_in(self, away: tuple[float, float]) -> bool:
        """Whether a replica that was out of the ISR then can have met neither the record nor its
        trace: it is removed delete.retention.ms after the first cleaning, at the earliest."""
        left, back = away
        return self.acked_s >= left and self.sent_s + DELETE_RETENTION_S <= back


class KeyedClient(SimClient):
    """A client that sees keys."""

    def wall_ms(self) -> int:
        return self._world.clock.wall_ms()

    async def read(self, offset: int) -> tuple[Found, int]:
        """Records from an offset on, and the next offset."""
        address, epoch = await self._leader(TP)
        asked = FetchPartition(TP, epoch, offset, -1, -1, 1 << 16)
        request = FetchRequest(-1, 300, 1, 1 << 20, 0, 0, -1, [asked], [], "")
        question = self._question(address, TP)
        try:
            connection = await self._connection(address)
            body = await connection.call_raw(
                1, FETCH_VERSION, [build_fetch(request, FETCH_VERSION)], TIMEOUT_S
            )
        except RequestTimedOut as error:
            raise Failed("TIMEOUT", str(error)) from error
        except OSError as error:
            raise Failed("CONNECTION", str(error)) from error
        answer = parse_fetch_answer(body, FETCH_VERSION)
        got = answer.partitions[0] if not answer.error else None
        code = ErrorCode(answer.error if got is None else got.error)
        if got is None or code is not ErrorCode.NONE:
            raise Failed(code.name)
        question.fetched(got)
        data = bytes(got.records)
        return _records(data), max([offset, *(h.last_offset + 1 for h in batches(data))])


@dataclass
class CompactedTopic:
    """The topic from its clients' side."""

    book: Book
    sent: dict[bytes, dict[bytes | None, None]] = field(default_factory=dict)
    """Key -> values that were tried."""
    acked: dict[int, Acked] = field(default_factory=dict)
    """Offset -> the record last acknowledged there."""
    deletions: dict[bytes, list[Deletion]] = field(default_factory=dict)
    count: int = 0

    async def produce(self, client: KeyedClient, rate: float = 25.0) -> None:
        """Sends until cancelled, each batch once; a failed one may still have been appended."""
        random = client.random
        while True:
            await trio.sleep(random.expovariate(rate))
            items, deleted = self.make(random, b"key", KEYS)
            batch = build_batch([Record(k, v, client.wall_ms()) for k, v in items])
            losses = losses_of(self.book, TP)
            name_batch(deleted, batch)
            try:
                base = await client.produce(TP, bytes(batch), -1)
            except Failed:
                client.forget(TP)
                await client.pause()
                continue
            self.acknowledged(base, items, losses)
            for at, deletion in deleted:
                deletion.offset, deletion.acked_s = base + at, self.book.now()

    def make(
        self, random: Random, prefix: bytes, keys: int
    ) -> tuple[list[tuple[bytes, bytes | None]], list[tuple[int, Deletion]]]:
        """Records to be sent now, and the tombstones among them, by position."""
        items: list[tuple[bytes, bytes | None]] = []
        for _ in range(random.randint(1, 3)):
            self.count += 1
            value = None if random.random() < 0.15 else b"%d.%s" % (self.count, b"x" * 20)
            items.append((b"%s-%d" % (prefix, random.randrange(keys)), value))
        deleted: list[tuple[int, Deletion]] = []
        for at, (key, value) in enumerate(items):
            self.sent.setdefault(key, {})[value] = None
            if value is None:
                deleted.append((at, Deletion(self.book.now())))
                self.deletions.setdefault(key, []).append(deleted[-1][1])
        return items, deleted

    def acknowledged(
        self, base: int, items: list[tuple[bytes, bytes | None]], losses: int = 0
    ) -> None:
        """Notes an acknowledged batch.  `losses`: the log's known losses when it was sent."""
        for offset, (key, value) in enumerate(items, base):
            earlier = self.acked.get(offset)
            if earlier is not None and earlier.item != (key, value) and not self._lost(offset):
                self.book.broken("C12", f"{TP}@{offset} was acknowledged twice")
            self.acked[offset] = Acked(key, value, losses)

    def _lost(self, offset: int) -> bool:
        return lost_since(self.book, TP, offset, self.acked[offset].losses)

    async def read_all(self, client: KeyedClient) -> Found:
        """The whole topic, as a consumer sees it."""
        found: Found = {}
        offset, end = 0, None
        while end is None or offset < end:
            try:
                if end is None:
                    offset = await client.list_offset(TP, -2)
                    end = await client.list_offset(TP, -1)
                    continue
                records, next_offset = await client.read(offset)
            except Failed:
                client.forget(TP)
                await client.pause()
                continue
            found |= records
            offset = next_offset
        return found

    def judge(self, final: Found, cluster: SimCluster) -> None:
        """Judges the topic after the last read."""
        binding = {at: acked.item for at, acked in self.acked.items() if not self._lost(at)}
        for offset, (key, value) in sorted(final.items()):
            if value not in self.sent.get(key, {}):
                self.book.broken("C7", f"{TP}@{offset} holds {key!r}={value!r}, never sent")
            if binding.get(offset, (key, value)) != (key, value):
                self.book.broken("C7", f"{TP}@{offset} holds {key!r}={value!r}, "
                                 f"acknowledged was {binding[offset]}")  # fmt: skip
        there = _last(final)
        for key, (offset, value) in sorted(_last(binding).items()):
            at, now = there.get(key, (-1, None))
            if at < offset and value is not None and not (at < 0 and self._deleted(key, offset)):
                self.book.broken(
                    "C4", f"{TP}: {key!r}={value!r} was acknowledged at {offset}, the last of its "
                    f"key, and is not there; {'nothing' if at < 0 else f'{now!r} at {at}'} is"
                )  # fmt: skip
            if at < offset and value is None and now is not None and not self._missed(key, at):
                self.book.broken(
                    "C15", f"{TP}: {key!r} was deleted at {offset}, and is {now!r} (at {at})"
                )
        self._compare(cluster)

    def _deleted(self, key: bytes, offset: int) -> bool:
        """Whether a tombstone that nobody acknowledged was committed above this offset."""
        stood = self.book.partitions[TP].stood
        found = any(
            deletion.offset is None and stood.get(deletion.crc, -1) > offset
            for deletion in self.deletions.get(key, [])
        )
        if found:
            self.book.seen["unanswered_tombstones"] += 1
        return found

    def _compare(self, cluster: SimCluster) -> None:
        """Compares replicas by surviving records (R5), below the end of the shortest log: a record
        whose sender was ended with the run may still be on its way."""
        logs: dict[int, bytes] = {}
        for broker, replica in sorted(self.book.partitions[TP].replicas.items()):
            disk, path = cluster.nodes[broker].host.disk, replica.mirror.path
            folder = disk.find(path)
            if not isinstance(folder, dict):
                continue
            files = [folder[name] for name in sorted(folder) if name.endswith(".log")]
            logs[broker] = b"".join(bytes(file.data) for file in files)  # type: ignore[union-attr]
        self._count_cleaned(cluster)
        if len(logs) < min(2, len(cluster.nodes)):
            self.book.broken("L4", f"{TP}: the logs of {sorted(logs)} alone could be compared")
        end = min((max((h.last_offset for h in batches(d)), default=-1) for d in logs.values()),
                  default=-1) + 1  # fmt: skip
        said = {broker: _alive(data, end) for broker, data in logs.items()}
        first = next(iter(said), None)
        for broker, keys in said.items():
            if first is None or keys == said[first]:
                continue
            for key in sorted(keys.keys() | said[first].keys()):
                mine, other = keys.get(key), said[first].get(key)
                if mine != other and not self._excused(key, {broker: mine, first: other}):
                    what = f"brokers {first} and {broker} differ in {key!r}: {other} and {mine}"
                    self.book.broken("R5", f"{TP}: {what}")
                    break

    def _count_cleaned(self, cluster: SimCluster) -> None:
        """Counts the replicas that were cleaned: of this topic, and of the coordinators' topics."""
        for tp, truth in self.book.partitions.items():
            if not truth.compacted:
                continue
            kind = "internal" if tp.topic in INTERNAL_TOPICS else "compacted"
            for broker, replica in truth.replicas.items():
                directory = replica.mirror.path.rpartition("/")[0]
                cleaned = _cleaned_to(cluster.nodes[broker].host.disk, directory).get(tp, 0)
                self.book.seen[f"{kind}_replicas"] += cleaned > 0

    def _excused(self, key: bytes, last: dict[int, tuple[int, bytes | None] | None]) -> bool:
        """Whether one replica alone has a value, and missed the tombstone after it."""
        there = {broker: found for broker, found in last.items() if found is not None}
        return len(there) == 1 and all(
            self._missed(key, offset, broker) for broker, (offset, _) in there.items()
        )

    def _missed(self, key: bytes, offset: int, broker: int | None = None) -> bool:
        """Whether this replica (or some) was away for all the life of a tombstone for the record
        at this offset."""
        truth = self.book.partitions.get(TP)
        absences = truth.absences if truth is not None else {}
        missed = any(
            deletion.missed_in(away) and truth is not None and truth.cleaned_unaware(away)
            for deletion in self.deletions.get(key, [])
            if deletion.offset is None or deletion.offset > offset
            for who, times in absences.items()
            if broker is None or who == broker
            for away in times
        )
        if missed:
            self.book.seen["missed_tombstones"] += 1
        return missed


def name_batch(deletions: list[tuple[int, Deletion]], data: bytes | bytearray) -> None:
    """Notes in tombstones that are to be sent in which batch they are."""
    for header in batches(data):
        for _, deletion in deletions:
            deletion.crc = header.crc


def _records(data: bytes | memoryview) -> Found:
    return {r.offset: (r.key or b"", r.value) for r in records_of(data)}


def _alive(data: bytes, end: int) -> dict[bytes, tuple[int, bytes | None]]:
    """The last record of each key below `end`, of those that it leaves with a value."""
    found = {offset: record for offset, record in _records(data).items() if offset < end}
    return {key: last for key, last in _last(found).items() if last[1] is not None}


def _last(found: Found) -> dict[bytes, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, (key, value) in sorted(found.items())}


def _cleaned_to(disk: SimDisk, directory: str) -> dict[TopicPartition, int]:
    try:
        return decode_offsets(bytes(disk.file(f"{directory}/{CLEANER_OFFSETS}").data))
    except (OSError, MalformedFileError):
        return {}
