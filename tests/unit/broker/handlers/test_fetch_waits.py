"""The cases in which a fetch is answered at once, and those in which it waits.

The bytes that count towards min_bytes are those of Apache Kafka's DelayedFetch.
tests/integration/oracle/script_times.py sends Apache Kafka the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.base.event_loop import monotonic_ms
from highwater.broker.handlers import fetch
from highwater.broker.log.parts import Origin
from highwater.broker.quota.entities import Entity
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.request.response import FileSlice, Response
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    build_fetch,
    parse_fetch_answer,
)
from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch
from tests.unit.broker.handlers.conftest import answered, in_broker

A, B, C = (TopicPartition("t", number) for number in range(3))
BATCH = bytes(build_batch([Record(None, b"v" * 100, 1)]))
OF_A_TRANSACTION = bytes(
    build_batch(
        [Record(None, b"v" * 100, 1)], producer_id=7, producer_epoch=0, base_sequence=0,
        attributes=TRANSACTIONAL,
    )
)  # fmt: skip
SIZE = len(BATCH)
CONSUMER, FOLLOWER = -1, 2
MANY, FEW = 1 << 20, 10 * SIZE - 1


async def lead(b: Any, *, segment_bytes: int = MANY, replicas: tuple[int, ...] = (1,)) -> None:
    await b.services.logs.load("the-cluster", 1)
    b.services.replicas.topic_overrides["t"] = {"segment.bytes": str(segment_bytes)}
    for tp in (A, B, C):
        partition = b.services.replicas._host(tp, is_new=True)
        b.services.replicas.partitions[tp] = partition
        partition.make_leader(state(1, 0, replicas), 0)


def state(leader: int, epoch: int, replicas: tuple[int, ...] = (1,)) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(epoch), ControllerEpoch(1), replicas[:1], ZkVersion(epoch),
        replicas,
    )  # fmt: skip


def append(b: Any, tp: TopicPartition, count: int = 1, data: bytes = BATCH) -> None:
    replicas = b.services.replicas
    for _ in range(count):
        records = memoryview(bytearray(data))
        replicas.append(replicas.partition(tp), records, 1, Origin.CLIENT)
    b.services.completions.drain()


class Asked:
    """A fetch: whether it has been answered, and with how many bytes of records."""

    def __init__(
        self,
        b: Any,
        min_bytes: int,
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        of_partition: int = MANY,
        of_all: int = MANY,
        replica: int = CONSUMER,
        isolation: int = 0,
        session_epoch: int = -1,
        epoch: int = -1,
    ) -> None:
        asked = [
            FetchPartition(tp, epoch, offset, -1, 0, of_partition)
            for tp, offset in (offsets or {A: 0}).items()
        ]
        request = FetchRequest(
            replica, 10_000, min_bytes, of_all, isolation, 0, session_epoch, asked, [], ""
        )
        self.answer: Response | None = None
        reply = fetch.handle(b.context(fetch, 11), memoryview(build_fetch(request, 11)))
        answered(b, reply, self._answered)

    def _answered(self, response: Response) -> None:
        self.answer = response

    @property
    def waits(self) -> bool:
        return self.answer is None

    @property
    def bytes(self) -> int:
        return sum(p.size for p in decoded(self.answer))

    def told(self) -> dict[TopicPartition, int]:
        """The HW of each partition in the answer."""
        return {p.tp: p.high_watermark for p in decoded(self.answer)}


def decoded(answer: Response | None) -> list[FetchedPartition]:
    """An answer's partitions, with zeros for records."""
    assert answer is not None, "it waits"
    parts = [bytes(p.size) if isinstance(p, FileSlice) else p for p in answer.parts or ()]
    return parse_fetch_answer(memoryview(b"".join(parts)), 11).partitions


@in_broker()
async def test_in_an_older_segment_than_the_end_it_waits_for_nothing(b: Any) -> None:
    await lead(b, segment_bytes=2 * SIZE)
    append(b, A, 3)  # the third begins a segment
    assert Asked(b, 9 * SIZE).bytes == 2 * SIZE
    assert Asked(b, 9 * SIZE, offsets={A: 1}).bytes == SIZE
    assert Asked(b, 9 * SIZE, offsets={A: 2}).waits
    assert Asked(b, 9 * SIZE, offsets={B: 0, A: 1}).bytes == SIZE


@in_broker()
async def test_who_waited_for_a_segment_to_grow_is_answered_when_the_next_begins(b: Any) -> None:
    await lead(b, segment_bytes=2 * SIZE)
    append(b, A, 1)
    at_the_end, before = Asked(b, 9 * SIZE, offsets={A: 1}), Asked(b, 9 * SIZE)
    beside = Asked(b, 9 * SIZE, offsets={B: 0})
    append(b, A, 1)
    assert at_the_end.waits
    assert before.waits
    append(b, A, 1)
    assert before.bytes == 2 * SIZE
    assert at_the_end.bytes == SIZE
    assert beside.waits


@in_broker()
async def test_who_waits_where_the_next_segment_begins_is_answered_by_its_first_batch(
    b: Any,
) -> None:
    await lead(b, segment_bytes=2 * SIZE)
    append(b, A, 2)
    waiting = Asked(b, 9 * SIZE, offsets={A: 2})
    append(b, A, 1)
    assert waiting.bytes == SIZE
    assert Asked(b, 9 * SIZE, offsets={A: 2}).waits
    at_its_end = Asked(b, 9 * SIZE, offsets={A: 3})
    append(b, A, 1)
    assert at_its_end.waits


@in_broker()
async def test_a_segment_that_begins_empty_ends_no_wait(b: Any) -> None:
    await lead(b)
    append(b, A, 1)
    waiting = Asked(b, 9 * SIZE, offsets={A: 1})
    b.services.replicas.partitions[A].log.roll()
    b.services.replicas.high_watermark_moved(A)
    b.services.completions.drain()
    assert waiting.waits
    append(b, A, 1)
    assert waiting.bytes == SIZE


@in_broker()
async def test_a_partition_that_its_max_bytes_cut_counts_as_that_many(b: Any) -> None:
    await lead(b)
    append(b, A, 3)
    limit = 2 * SIZE + 1
    assert Asked(b, limit, of_partition=limit).bytes == 2 * SIZE
    assert Asked(b, limit + 1, of_partition=limit).waits
    assert Asked(b, limit, of_partition=limit, offsets={A: 1}).waits  # two whole ones are left


@in_broker()
async def test_each_partition_counts_up_to_its_own_limit(b: Any) -> None:
    await lead(b)
    append(b, A, 3)
    append(b, B, 3)
    limit = 2 * SIZE - 1
    both = {A: 0, B: 0}
    assert Asked(b, 2 * limit, of_partition=limit, offsets=both).bytes == 2 * SIZE
    assert Asked(b, 2 * limit + 1, of_partition=limit, offsets=both).waits


@in_broker()
async def test_what_had_no_room_counts_until_the_answer(b: Any) -> None:
    await lead(b)
    append(b, A, 1)
    append(b, B, 1)
    all_three = {A: 0, B: 0, C: 0}  # SIZE of A, and one byte less of each other
    waiting = Asked(b, 3 * SIZE - 2, of_partition=SIZE - 1, offsets=all_three)
    assert waiting.waits
    append(b, C, 1)
    assert waiting.bytes == SIZE


@in_broker()
async def test_the_first_batch_counts_whole(b: Any) -> None:
    await lead(b)
    append(b, A, 3)
    assert Asked(b, SIZE, of_partition=10).bytes == SIZE
    assert Asked(b, SIZE + 1, of_partition=10).waits


@in_broker(fetch_max_bytes=FEW)
async def test_min_bytes_is_no_more_than_the_whole_answer_may_have(b: Any) -> None:
    await lead(b)
    append(b, A, 3)
    assert Asked(b, 9 * SIZE, of_all=2 * SIZE + 1).bytes == 2 * SIZE
    assert Asked(b, 9 * SIZE, of_all=3 * SIZE + 1).waits
    assert Asked(b, 0, of_all=0, offsets={B: 0}).bytes == 0
    append(b, B, FEW // SIZE)
    assert Asked(b, MANY, offsets={B: 0}).waits
    append(b, B, 1)
    assert Asked(b, MANY, offsets={B: 0}).bytes == FEW // SIZE * SIZE


@in_broker()
async def test_what_no_longer_fits_into_the_answer_counts(b: Any) -> None:
    await lead(b)
    append(b, A, 1)
    append(b, B, 1)
    limit = 2 * SIZE - 1
    assert Asked(b, limit, of_all=limit, offsets={A: 0, B: 0}).bytes == SIZE


@in_broker()
async def test_a_consumer_with_a_quota_waits_for_no_more_than_it_may_have(b: Any) -> None:
    await lead(b)
    append(b, A, 3)
    assert Asked(b, MANY).waits
    a_second = 2 * SIZE / 10  # for ten seconds: quota.window.num - 1
    b.services.quotas.configured(Entity(None, "test"), {"consumer_byte_rate": f"{a_second}"})
    assert Asked(b, MANY).bytes == 2 * SIZE
    assert Asked(b, MANY, offsets={B: 0}).waits


@in_broker(transaction_partition_verification_enable=False)
async def test_read_committed_counts_up_to_the_lso(b: Any) -> None:
    await lead(b)
    append(b, A, 2)
    append(b, A, 1, OF_A_TRANSACTION)
    assert Asked(b, 2 * SIZE, isolation=1).bytes == 2 * SIZE
    assert Asked(b, 2 * SIZE + 1, isolation=1).waits
    assert Asked(b, 2 * SIZE + 1).bytes == 3 * SIZE
    limit = SIZE + 1
    assert Asked(b, limit, isolation=1, of_partition=limit).bytes == SIZE


@in_broker(transaction_partition_verification_enable=False)
async def test_a_segment_that_begins_at_or_above_the_lso_ends_no_wait_below_it(b: Any) -> None:
    await lead(b, segment_bytes=2 * SIZE)
    append(b, A, 1)
    append(b, A, 1, OF_A_TRANSACTION)
    waiting = Asked(b, 9 * SIZE, isolation=1), Asked(b, 9 * SIZE, isolation=1, offsets={A: 1})
    append(b, A, 3)
    assert all(w.waits for w in waiting)
    assert Asked(b, 9 * SIZE, isolation=1).waits
    assert Asked(b, 9 * SIZE).bytes == 2 * SIZE


@in_broker(transaction_partition_verification_enable=False)
async def test_an_offset_above_what_may_be_seen_waits(b: Any) -> None:
    await lead(b)
    append(b, A, 1, OF_A_TRANSACTION)
    append(b, A, 1)
    assert Asked(b, 1, isolation=1, offsets={A: 2}).waits
    assert Asked(b, 1, offsets={A: 2}).waits


@in_broker()
async def test_a_follower_counts_up_to_the_log_end_and_in_segments(b: Any) -> None:
    await lead(b, segment_bytes=3 * SIZE, replicas=(1, FOLLOWER))
    append(b, A, 2)
    limit = SIZE + 1
    assert Asked(b, limit, replica=FOLLOWER, of_partition=limit).bytes == SIZE
    assert Asked(b, 9 * SIZE, replica=FOLLOWER).waits
    append(b, A, 2)
    assert Asked(b, 9 * SIZE, replica=FOLLOWER).bytes == 3 * SIZE


@in_broker()
async def test_a_hw_that_moves_has_a_waiting_follower_read_nothing(b: Any) -> None:
    """It waits for records; with two followers each write would be read twice more."""
    third = 3
    await lead(b, replicas=(1, FOLLOWER, third))
    replicas, reads = b.services.replicas, list[TopicPartition]()
    partition = replicas.partitions[A]
    partition.isr.reset((1, FOLLOWER, third), state(1, 0).zk_version)
    append(b, A, 1)
    plain = replicas.read

    def read(asked: FetchPartition, *rest: Any) -> Any:
        reads.append(asked.tp)
        return plain(asked, *rest)

    replicas.read = read
    offsets = {A: 1, B: 0}
    waiting = Asked(b, 1, replica=FOLLOWER, offsets=offsets, session_epoch=0, epoch=0)
    asked = FetchPartition(A, 0, 1, -1, 0, MANY)
    replicas.follower_progress(asked, third)
    assert partition.high_watermark == 1
    b.services.completions.drain()
    assert waiting.waits
    assert reads == [], "it has all there is"
    append(b, B, 1)
    assert waiting.bytes == SIZE
    assert reads == [], "what was just written is not read back"
    assert waiting.told() == {A: 1, B: 0}, "the HW that moved is told with the records"


@in_broker()
async def test_a_waiting_follower_is_told_of_a_new_leader_at_once(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    replicas = b.services.replicas
    waiting = Asked(b, 1, replica=FOLLOWER, session_epoch=0, epoch=0)
    replicas.partitions[A].make_leader(state(1, 1, (1, FOLLOWER)), 0)
    b.services.completions.drain()
    assert waiting.answer is not None
    assert waiting.answer.error_names == ("FENCED_LEADER_EPOCH",)


@in_broker()
async def test_a_throttled_followers_partition_neither_counts_nor_ends_the_wait(b: Any) -> None:
    await lead(b, segment_bytes=2 * SIZE, replicas=(1, FOLLOWER))
    append(b, A, 3)
    append(b, B, 1)
    throttle = b.services.replicas.throttles.leader
    throttle.mark("t", "0:1", 1)
    throttle.bound = 1
    throttle.record(MANY, monotonic_ms())
    assert Asked(b, 1, replica=FOLLOWER).waits
    assert Asked(b, SIZE + 1, replica=FOLLOWER, offsets={A: 0, B: 0}).waits
    assert Asked(b, SIZE, replica=FOLLOWER, offsets={A: 0, B: 0}).bytes == SIZE
    assert Asked(b, 9 * SIZE).bytes == 2 * SIZE, "consumers are not throttled by it"


@in_broker()
async def test_who_leads_no_more_or_in_a_later_epoch_ends_the_wait(b: Any) -> None:
    await lead(b)
    append(b, A, 1)
    replicas = b.services.replicas
    waiting = Asked(b, MANY), Asked(b, MANY, offsets={B: 0, A: 1})
    replicas.partitions[A].make_follower(state(2, 1))
    replicas.high_watermark_moved(A)
    b.services.completions.drain()
    for fetch_ in waiting:
        assert fetch_.answer is not None
        assert fetch_.answer.error_names == ("NOT_LEADER_OR_FOLLOWER",)
