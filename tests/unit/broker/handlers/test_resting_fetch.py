"""A follower's fetches of partitions at rest: not read, but timed; those that wake are reported."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.context import Delayed
from highwater.broker.handlers import fetch
from highwater.broker.replica.fetch_sessions import FetchSession
from highwater.broker.request.response import FileSlice, Response
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch
from tests.unit.broker.handlers.conftest import in_broker
from tests.unit.broker.handlers.test_fetch_waits import MANY, SIZE, A, B, C, append, lead, state

FOLLOWER = 2
ROOMS = ("/broker/handlers/", "/broker/replica/", "/broker/request/", "/kafka/wire/fetch")


def of(tp: TopicPartition, offset: int = 0) -> FetchPartition:
    return FetchPartition(tp, 0, offset, -1, 0, MANY)


class Follower:
    """Broker 2 in a session with this leader, and in the ISR of all that it asks for."""

    def __init__(self, b: Any, tps: Sequence[TopicPartition] = (A, B, C)) -> None:
        self.b, self.session_id, self.epoch = b, 0, 0
        self.answers: list[Response] = []
        for tp in tps:
            told = state(1, 0, (1, FOLLOWER))
            b.services.replicas.partitions[tp].isr.reset((1, FOLLOWER), told.zk_version)
        self.ask([of(tp) for tp in tps])
        (session,) = b.services.replicas.sessions._sessions.values()
        self.session: FetchSession = session
        self.session_id = session.id

    def ask(self, asked: Sequence[FetchPartition] = (), wait_ms: int = 0) -> None:
        request = FetchRequest(
            FOLLOWER, wait_ms, 1, MANY, 0, self.session_id, self.epoch, list(asked), [], ""
        )
        reply = fetch.handle(self.b.context(fetch, 11), memoryview(build_fetch(request, 11)))
        assert isinstance(reply, Delayed)
        self.b.services.purgatories.submit(reply.operation, self.answers.append)
        self.epoch += 1

    @property
    def bytes(self) -> int:
        """Of records, in the latest answer."""
        parts = self.answers[-1].parts or ()
        return sum(part.size for part in parts if isinstance(part, FileSlice))


@in_broker()
async def test_a_partition_at_rest_is_not_read_and_its_follower_is_there(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    assert f.session.rests.keys() == {A, B, C}
    await trio.sleep(0.05)
    now_ms = monotonic_ms()
    append(b, A)
    f.ask()
    assert f.session.rests.keys() == {B, C}
    append(b, B)
    in_session = b.services.replicas.partitions[B].followers[FOLLOWER]
    assert in_session.last_fetch_ms >= now_ms
    assert in_session.last_caught_up_ms >= now_ms


@in_broker()
async def test_what_wakes_during_the_wait_is_in_its_answer(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(wait_ms=10_000)
    assert len(f.answers) == 1, "it waits"
    append(b, B)
    assert len(f.answers) == 2
    assert f.bytes == SIZE
    assert f.session.awake.keys() == {B}
    f.ask([of(B, 1)], wait_ms=10_000)
    assert len(f.answers) == 2, "it waits"
    assert b.services.replicas.partitions[B].high_watermark == 1


@in_broker()
async def test_a_hw_alone_ends_no_wait_and_records_after_it_do(b: Any) -> None:
    """A partition that has joined a fetch is watched as long as the fetch waits."""
    third = 3
    await lead(b, replicas=(1, FOLLOWER, third))
    f = Follower(b)
    replicas = b.services.replicas
    partition = replicas.partitions[B]
    partition.isr.reset((1, FOLLOWER, third), state(1, 0).zk_version)
    partition.followers[third].log_end_offset = 0
    append(b, B)
    f.ask()
    f.ask([of(B, 1)])
    assert f.session.rests.keys() == {A, B, C}
    f.ask(wait_ms=10_000)
    answered = len(f.answers)
    replicas.follower_progress(of(B, 1), third)
    b.services.completions.drain()
    assert partition.high_watermark == 1
    assert f.session.awake.keys() == {B}
    assert len(f.answers) == answered, "only a HW moved"
    append(b, B)
    assert len(f.answers) == answered + 1
    assert f.bytes == SIZE


@in_broker()
async def test_a_log_start_is_told_by_the_next_fetch(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    append(b, A)
    f.ask()
    f.ask([of(A, 1)])
    f.ask()
    assert f.session.rests.keys() == {A, B, C}
    b.services.replicas.partitions[A].require_log().advance_log_start(1)
    f.ask()
    assert f.session.told[A] == (1, 1, 1)


@in_broker()
async def test_what_wakes_between_a_fetch_and_its_wait_is_not_missed(b: Any) -> None:
    """A fetch that is read in turns is not in the purgatory yet."""
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    request = FetchRequest(FOLLOWER, 10_000, 1, MANY, 0, f.session_id, 1, [], [], "")
    reply = fetch.handle(b.context(fetch, 11), memoryview(build_fetch(request, 11)))
    assert isinstance(reply, Delayed)
    append(b, C)
    b.services.purgatories.submit(reply.operation, f.answers.append)
    assert f.bytes == SIZE


@pytest.mark.parametrize("wait_ms", [0, 10_000])
@in_broker()
async def test_a_fetch_makes_as_many_calls_with_10_partitions_at_rest_as_with_1000(
    b: Any, wait_ms: int
) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    seen = {}
    replicas = b.services.replicas
    for count in (10, 1000):
        tps = [TopicPartition("idle", n) for n in range(count)]
        for tp in tps:
            if tp not in replicas.partitions:
                replicas.partitions[tp] = partition = replicas._host(tp, is_new=True)
                partition.make_leader(state(1, 0, (1, FOLLOWER)), 0)
        replicas.sessions._sessions.clear()
        partition = replicas.partitions[A]
        end = partition.require_log().log_end_offset
        for tp in (*tps, A):
            replicas.partitions[tp].isr.reset((1, FOLLOWER), state(1, 0).zk_version)
        # the whole session at once would be read in turns
        f = Follower(b, tps[:10])
        for first in range(10, count, 100):
            f.ask([of(tp) for tp in tps[first : first + 100]])
        f.ask([of(A, end)])
        f.ask()
        assert len(f.session.rests) == count + 1
        a_write(f, end, wait_ms)
        end += 1
        seen[count] = calls(lambda f=f, end=end: a_write(f, end, wait_ms))
    assert seen[10] == seen[1000]
    assert seen[10].total() > 100


def a_write(f: Follower, end: int, wait_ms: int) -> None:
    """One record, the fetch that takes it, the next one, and one that finds nothing new."""
    f.ask(wait_ms=wait_ms)
    append(f.b, A)
    if not wait_ms:
        f.ask()
    assert f.bytes == SIZE
    f.ask([of(A, end + 1)])
    f.ask()


def calls(work: Any) -> Counter[str]:
    """How often each Python function of what serves a fetch is called; an append, which is in
    between, may begin a file."""
    made: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and any(room in frame.f_code.co_filename for room in ROOMS):
            made[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made
