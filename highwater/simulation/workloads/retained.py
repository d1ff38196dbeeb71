"""Topics whose beginning goes by retention, and lookups by time.

`kept` loses nothing; `sized` has retention.bytes, `aged` retention.ms, and all three have segments
of a few batches.  Records bear the producer's clock, now and then out of order, so that the order
of time is not that of offsets; some are sent with acks=1.  A reader follows the logs from their
beginning on, and an asker looks up offsets by time, while leaders change and logs are cut.  The
checks:

* C4: a lookup by time skips no acknowledged record that is late enough, and finds one where there
  is one; its timestamp is that of the record at the offset.
* C15: a position that was read is out of range only where retention took it.
* R5: no replica's log loses its beginning but by its own retention, or after another's: of `kept`
  nothing, of `sized` nothing while less than retention.bytes would stay, of `aged` no record that
  is younger, by its broker's clock, than retention.ms.

Careless power losses are excused by `allowed_losses.lost_since`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import ListOffsetsRequest
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation.rules.allowed_losses import losses_of, lost_since
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.plain_client import Failed, SimClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from highwater.simulation.rules.agreed_log import PartitionTruth, Replica
    from highwater.simulation.rules.mirror import Batch
    from highwater.world.sim import Host, Kernel

KEPT, SIZED, AGED = "kept", "sized", "aged"
RETENTION_BYTES, RETENTION_MS = 1500, 4000
SMALL = {"segment.bytes": "600", "index.interval.bytes": "100"}
TOPICS: Mapping[str, Mapping[str, str]] = {
    KEPT: {**SMALL, "retention.ms": "-1"},
    SIZED: {**SMALL, "retention.ms": "-1", "retention.bytes": str(RETENTION_BYTES)},
    AGED: {**SMALL, "retention.ms": str(RETENTION_MS)},
}
TPS = [TopicPartition(topic, 0) for topic in TOPICS]
_EARLIEST, _MAX_TIMESTAMP = -2, -3
_NOWHERE = (-1, -1)


class Known(NamedTuple):
    """An acknowledged record.  `losses`: the log's known losses when it was sent."""

    value: bytes
    timestamp: int
    losses: int


class AskingClient(SimClient):
    """A client with a clock, which asks for offsets by time."""

    def wall_ms(self) -> int:
        return self._world.clock.wall_ms()

    async def find(self, tp: TopicPartition) -> None:
        """Learns the partition's leader where it is not known."""
        await self._leader(tp)

    async def lookup(self, tp: TopicPartition, timestamp: int) -> tuple[int, int]:
        """Timestamp and offset of the first record that is not earlier; -1, -1 for none."""
        address, epoch = await self._leader(tp)
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[topic(name=tp.topic, partitions=[asked])]
        )
        question = self._question(address, tp)
        answer = await self._call(address, request, 7)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise Failed(ErrorCode(found.error_code).name)
        question.dated(tp, int(found.offset), largest=timestamp == _MAX_TIMESTAMP)
        return int(found.timestamp), int(found.offset)


@dataclass
class RetainedTopics(Part):
    """The topics from their clients' side."""

    flag = "retained"
    help = "Retention by size and time; lookups by time."
    topics = tuple(Topic(name, config=config) for name, config in TOPICS.items())
    client_kind, last = AskingClient, "last-asker"

    hosts: Mapping[int, Host] = field(default_factory=dict)
    """The brokers' machines, for their clocks."""
    acked: dict[TopicPartition, dict[int, Known]] = field(
        default_factory=lambda: {tp: {} for tp in TPS}
    )
    positions: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(TPS, 0))
    begun: Counter[TopicPartition] = field(default_factory=Counter)
    """The highest offset at which one of the logs has begun."""
    sent: int = 0

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        return {"retention_check_ms": 1000}

    @classmethod
    def of(cls, shared: Shared) -> Self:
        made = cls(*shared.told, shared.hosts)
        made.rules.log_begins = made.log_begins
        return made

    def clients(self) -> Works:
        return {"timed": self.produce, "timed-reader": self.consume, "asker": self.ask}

    # -- producing and reading --------------------------------------------------------------------

    async def produce(self, client: AskingClient, rate: float = 12.0) -> None:
        """Sends until cancelled, each batch once; a failed one may still have been appended."""
        random = client.random
        while True:
            await trio.sleep(random.expovariate(rate * self.pace))
            tp = random.choice(TPS)
            records = []
            for _ in range(random.randint(1, 3)):
                self.sent += 1
                late = random.randrange(3000) if random.random() < 0.2 else 0
                value = b"%s.%d.%s" % (tp.topic.encode(), self.sent, b"." * 40)
                records.append(Record(None, value, client.wall_ms() - late))
            losses = losses_of(self.rules, tp)
            # with acks=1 records stand above a HW that cannot move
            acks = 1 if tp.topic != KEPT and random.random() < 0.3 else -1
            try:
                base = await client.produce(tp, bytes(build_batch(records)), acks)
            except Failed as failed:
                await self._again(client, tp, failed)
                continue
            if acks < 0:
                self.acknowledged(tp, base, records, losses)

    def acknowledged(
        self, tp: TopicPartition, base: int, records: list[Record], losses: int
    ) -> None:
        self.count["retained: acked"] += len(records)
        for offset, record in enumerate(records, base):
            value = record.value or b""
            self.rules.acknowledged(tp, offset, value)
            self.acked[tp][offset] = Known(value, record.timestamp, losses)

    async def consume(self, client: AskingClient) -> None:
        """Reads until cancelled, from the beginning that there is."""
        while True:
            for tp in TPS:
                try:
                    polled = await client.fetch(tp, self.positions[tp], 100)
                except Failed as failed:
                    if failed.name == "OFFSET_OUT_OF_RANGE":
                        await self._reset(client, tp)
                    await self._again(client, tp, failed)
                    continue
                for offset, _, value in polled.records:
                    self.rules.consumed(tp, offset, value)
                self.count["retained: read"] += len(polled.records)
                self.positions[tp] = max(self.positions[tp], polled.next_offset)
            await client.pause(0.05 / self.pace, 0.2 / self.pace)

    async def _reset(self, client: AskingClient, tp: TopicPartition) -> None:
        position = self.positions[tp]
        truth = self.rules.partitions[tp]
        lost = any(start < position <= end for start, end in truth.given_up)
        asked, led = client.known_term(tp)[1], truth.state.leader_epoch if truth.state else -1
        if asked < led:  # a former leader, whose log may end below what the next one wrote
            self.count["retained: out of a former leader's range"] += asked >= 0
        elif position >= self._start(tp) and not lost and asked >= 0:
            self.rules.broken("C15", f"{tp}@{position} is out of range, and no replica dropped it")
        self.count["retained: out of range"] += 1
        try:
            self.positions[tp] = await client.list_offset(tp, _EARLIEST)
        except Failed as failed:
            self.errors[failed.name] += 1

    async def _again(self, client: AskingClient, tp: TopicPartition, failed: Failed) -> None:
        self.errors[failed.name] += 1
        client.forget(tp)
        await client.pause()

    def _start(self, tp: TopicPartition) -> int:
        """The highest beginning that a replica's log has: by its files, or, where it came from
        another directory with older ones, by what its broker knows."""
        starts = [0]
        for broker, replica in self.rules.partitions[tp].replicas.items():
            known = self.rules.answers.known(broker, tp)
            starts += [replica.mirror.start, known.log_start if known is not None else 0]
        return max(starts)

    # -- lookups by time --------------------------------------------------------------------------

    async def ask(self, client: AskingClient) -> None:
        """Looks up offsets by time until cancelled."""
        while True:
            await client.pause(0.05 / self.pace, 0.3 / self.pace)
            tp = client.random.choice(TPS)
            known = list(self.acked[tp].values())
            if not known:
                continue
            near = client.random.choice(known[-60:]).timestamp
            choices = (near, near, near, near - 1, near + 1, 0, _MAX_TIMESTAMP)
            await self.ask_one(client, tp, client.random.choice(choices))

    async def ask_one(self, client: AskingClient, tp: TopicPartition, timestamp: int) -> None:
        truth = self.rules.partitions[tp]
        before = list(self.acked[tp].items())
        state = truth.state
        try:
            await client.find(tp)
            current = state is not None and client.known_term(tp)[1] == state.leader_epoch
            answer = await client.lookup(tp, timestamp)
        except Failed as failed:
            await self._again(client, tp, failed)
            return
        self.count["lookups by time"] += 1
        self.count["lookups by time: nothing"] += answer == _NOWHERE
        self.answered(tp, timestamp, answer, dict(before), current=current)

    def answered(
        self,
        tp: TopicPartition,
        timestamp: int,
        answer: tuple[int, int],
        before: dict[int, Known],
        *,
        current: bool,
    ) -> None:
        """`before` was acknowledged before the question; `current`: it went to the leader that
        ZooKeeper had then."""
        at, offset = answer
        broken, start = self.rules.broken, self._start(tp)
        record = self.acked[tp].get(offset)
        if record is not None and record.timestamp != at and not self._lost(tp, offset, record):
            broken("C4", f"{tp}@{offset} is of {record.timestamp}, and was found under {at}")
        if timestamp >= 0 and 0 <= at < timestamp:
            broken("C4", f"{tp}: {timestamp} was asked for, and {at} found at {offset}")
        if answer == _NOWHERE and (not current or timestamp == _MAX_TIMESTAMP):
            return  # the largest may not be committed yet
        for place, known in before.items():
            late_enough = known.timestamp > at if timestamp < 0 else known.timestamp >= timestamp
            # a former leader's log may end below what the next one wrote
            skipped = answer == _NOWHERE or place < offset or (timestamp < 0 and current)
            if late_enough and skipped and place >= start and not self._lost(tp, place, known):
                broken(
                    "C4", f"{tp}: {timestamp} was asked for, and the answer was {at} at {offset}; "
                    f"a record of {known.timestamp} was acknowledged at {place} before"
                )  # fmt: skip

    def _lost(self, tp: TopicPartition, offset: int, known: Known) -> bool:
        return lost_since(self.rules, tp, offset, known.losses)

    # -- retention --------------------------------------------------------------------------------

    def log_begins(self, truth: PartitionTruth, replica: Replica, gone: list[Batch]) -> None:
        """A replica's log has lost these batches at its beginning."""
        tp, start = truth.tp, replica.mirror.start
        if tp.topic not in TOPICS or not gone:
            return
        # a copy from another directory may still hold what its log had deleted meanwhile
        others = (r.mirror.start for r in truth.replicas.values() if r is not replica)
        highest = max(self.begun[tp], *others, 0)
        self.begun[tp] = max(highest, start)
        if highest >= start:
            return
        self.count[f"retention: {tp.topic}"] += 1
        who = f"{tp}: the log of broker {replica.broker} begins at {start}"
        if tp.topic == KEPT:
            self.rules.broken("R5", f"{who}, though nothing goes there")
        if tp.topic == SIZED and (left := replica.mirror.size) < RETENTION_BYTES:
            self.rules.broken("R5", f"{who}, and keeps {left} bytes only")
        now = self.hosts[replica.broker].clock.wall_ms()
        for offset in range(gone[0].base, gone[-1].last + 1) if tp.topic == AGED else ():
            known = self.acked[tp].get(offset)
            young = known is not None and now - known.timestamp <= RETENTION_MS
            if known is not None and young and not self._lost(tp, offset, known):
                self.rules.broken(
                    "R5", f"{who}; the record at {offset} was {now - known.timestamp} ms old"
                )

    # -- the verdict ------------------------------------------------------------------------------

    async def judge(self, client: AskingClient) -> None:
        """Looks up every part of time once more, where all leaders are known."""
        for tp in TPS:
            known = list(self.acked[tp].values())
            for record in known[:: max(len(known) // 8, 1)]:
                await self.ask_one(client, tp, record.timestamp)
            await self.ask_one(client, tp, _MAX_TIMESTAMP)
