"""A follower's feed: partitions at rest are not read, but timed; those with news are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.handlers import fetch
from highwater.broker.log.parts import Origin
from highwater.broker.replica import feed
from highwater.broker.replica.feed import Feed
from highwater.broker.request.response import Response
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch
from tests.unit.broker.handlers.conftest import Desk, answered, in_broker
from tests.unit.broker.handlers.test_fetch_waits import (
    BATCH,
    MANY,
    SIZE,
    A,
    B,
    C,
    append,
    decoded,
    lead,
    state,
)  # fmt: skip

FOLLOWER, OTHER = 2, 3
ROOMS = ("/broker/handlers/", "/broker/replica/", "/broker/request/", "/kafka/wire/fetch")
LAG_MS = 10_000
"""replica.lag.time.max.ms."""


def of(tp: TopicPartition, offset: int = 0) -> FetchPartition:
    return FetchPartition(tp, 0, offset, -1, 0, MANY)


class Follower:
    """Broker 2 in a session with this leader, and in the ISR of all that it asks for."""

    def __init__(self, b: Any, tps: Sequence[TopicPartition] = (A, B, C)) -> None:
        self.b, self.session_id, self.epoch = b, 0, 0
        self.answers: list[Response] = []
        replicas = b.services.replicas
        for tp in tps:
            partition = replicas.partitions[tp]
            members = (1, *partition.followers)
            partition.isr.reset(members, state(1, 0).zk_version)
        self.ask([of(tp) for tp in tps])
        (session,) = replicas.sessions._sessions.values()
        self.feed: Feed = session
        self.session_id = session.id

    def ask(
        self,
        asked: Sequence[FetchPartition] = (),
        wait_ms: int = 0,
        forgotten: Sequence[TopicPartition] = (),
    ) -> None:
        """As the handler pool serves it: by the short way, if that takes it."""
        request = FetchRequest(
            FOLLOWER, wait_ms, 1, MANY, 0, self.session_id, self.epoch, list(asked),
            list(forgotten), "",
        )  # fmt: skip
        body = memoryview(build_fetch(request, 11))
        steady = self.b.services.replicas.sessions.steady(body, monotonic_ms())
        if steady is not None:
            desk = Desk(self.answers.append)
            assert steady.serve("a fetch", desk, self.b.services.completions) is None
        else:
            answered(self.b, fetch.handle(self.b.context(fetch, 11), body), self.answers.append)
        self.epoch += 1

    @property
    def bytes(self) -> int:
        """Of records, in the latest answer."""
        return sum(p.size for p in decoded(self.answers[-1]))

    @property
    def told(self) -> list[TopicPartition]:
        return [p.tp for p in decoded(self.answers[-1])]

    @property
    def resting(self) -> set[TopicPartition]:
        found = {tp for tp, fed in self.feed.partitions.items() if fed.rests}
        awake = {fed.asked.tp for fed in self.feed.news}
        assert found | awake == self.feed.partitions.keys()
        assert not found & awake
        return found


@in_broker()
async def test_a_partition_at_rest_is_not_read_and_its_follower_is_there(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    assert f.resting == {A, B, C}
    await trio.sleep(0.05)
    now_ms = monotonic_ms()
    append(b, A)
    f.ask()
    assert f.resting == {B, C}
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
    assert f.resting == {A, C}
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
    assert f.resting == {A, B, C}
    f.ask(wait_ms=10_000)
    answered = len(f.answers)
    replicas.follower_progress(of(B, 1), third)
    b.services.completions.drain()
    assert partition.high_watermark == 1
    assert f.resting == {A, C}
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
    assert f.resting == {A, B, C}
    b.services.replicas.partitions[A].require_log().advance_log_start(1)
    f.ask()
    assert f.feed.partitions[A].told == (1, 1, 1)
    assert f.told == [A]


@in_broker()
async def test_what_changes_between_the_turns_of_a_fetch_is_not_missed(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.feed.begin(11, 10_000, 1, MANY)
    assert await f.feed.in_turns()
    append(b, C)
    f.feed.serve("a fetch", Desk(f.answers.append), b.services.completions)
    assert f.bytes == SIZE


@in_broker()
async def test_what_a_turn_has_read_is_not_sent_once_it_has_changed(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    append(b, C)
    f.feed.begin(11, 10_000, 1, MANY)
    assert await f.feed.in_turns()
    follows(b, C)
    f.feed.serve("a fetch", Desk(f.answers.append), b.services.completions)
    assert f.bytes == 0
    assert f.answers[-1].error_names == ("FENCED_LEADER_EPOCH",)


@in_broker()
async def test_another_fetch_of_the_session_ends_the_turns_of_the_one_before(
    b: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    append(b, C)
    f.feed.begin(11, 10_000, 1, MANY)
    ended: list[bool] = []

    async def turns(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        ended.append(await f.feed.in_turns())

    monkeypatch.setattr(feed, "AT_ONCE", 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(turns)
        f.feed.give_up()
    assert ended == [False]


@in_broker()
async def test_of_two_waiting_fetches_of_a_session_the_newer_counts(b: Any) -> None:
    """The connection of the other one is gone, or its follower has forgotten it."""
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(wait_ms=10_000)
    f.ask([of(A)], wait_ms=10_000)
    assert f.told == []
    count = len(f.answers)
    append(b, C)
    assert len(f.answers) == count + 1
    assert f.bytes == SIZE
    assert b.services.purgatories.pending("Fetch") == 0


@in_broker()
async def test_a_session_that_ends_answers_and_lets_go(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(wait_ms=10_000)
    b.services.replicas.sessions.close(f.feed)
    assert f.told == []
    assert {p.followers[FOLLOWER].fed for p in b.services.replicas.partitions.values()} == {None}


@in_broker()
async def test_what_is_forgotten_has_no_news(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(forgotten=[A])
    assert f.resting == {B, C}
    assert b.services.replicas.partitions[A].followers[FOLLOWER].fed is None
    f.ask(wait_ms=10_000)
    count = len(f.answers)
    append(b, A)
    assert len(f.answers) == count


@in_broker()
async def test_a_wait_ends_at_its_own_time(b: Any) -> None:
    """The timer of the wait before is on the wheel still."""
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(wait_ms=1000)
    await trio.sleep(0.6)
    append(b, A)
    f.ask([of(A, 1)], wait_ms=1000)
    count, began = len(f.answers), monotonic_ms()
    while len(f.answers) == count:
        await trio.sleep(0.01)
    assert monotonic_ms() - began in range(1000, 1020)
    assert f.told == [A], "its HW"


@in_broker()
async def test_what_was_just_written_is_sent_without_being_read_back(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    replicas = b.services.replicas
    read, replicas.read = replicas.read, None  # to ask it would be an error
    log = replicas.partitions[A].require_log()
    for end in (1, 2):
        f.ask(wait_ms=10_000)
        append(b, A)
        (found,) = decoded(f.answers[-1])
        assert bytes(found.records) == log.segments[0].file.read((end - 1) * SIZE, SIZE)
        f.ask([of(A, end)])
    replicas.read = read
    f.ask(wait_ms=10_000)
    partition = replicas.partitions[A]
    partition.append(memoryview(bytearray(BATCH)), 1, 0, 0, Origin.CLIENT)
    assert f.feed.partitions[A].fresh is not None
    append(b, A)
    assert f.bytes == 2 * SIZE, "it has been followed by another"


@in_broker()
async def test_bytes_that_were_written_are_kept_only_for_who_waits_for_them(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    append(b, A)
    assert f.feed.partitions[A].fresh is None, "no fetch waits"
    fed = f.feed.partitions[A]
    f.ask([of(A, 1)])
    for end in (
        lambda: f.ask([of(A, 1)]),
        lambda: append(b, A),
        lambda: follows(b),
        lambda: f.ask(forgotten=[A]),
        lambda: b.services.replicas.sessions.close(f.feed),
    ):
        fed.fresh = memoryview(BATCH)
        end()
        assert [fed.fresh] == [None]
        fed = next(iter(f.feed.partitions.values()))


@in_broker()
async def test_a_shorter_wait_than_the_one_before_ends_in_time(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(wait_ms=100_000)
    f.ask(wait_ms=500)
    count, began = len(f.answers), monotonic_ms()
    while len(f.answers) == count:
        await trio.sleep(0.01)
    assert monotonic_ms() - began in range(500, 520)


@in_broker()
async def test_a_topic_that_is_forgotten_leaves_nothing(b: Any) -> None:
    await lead(b, replicas=(1, FOLLOWER))
    f = Follower(b)
    f.ask(forgotten=[A, B])
    assert f.feed.topics == {b"t": {2: f.feed.partitions[C]}}
    f.ask(forgotten=[C])
    assert f.feed.topics == {}


def appended(b: Any) -> None:
    append(b, A)


def deleted_below(b: Any) -> None:
    b.services.replicas.partitions[A].require_log().advance_log_start(1)


def leads_a_newer_epoch(b: Any) -> None:
    b.services.replicas.partitions[A].make_leader(state(1, 1, (1, FOLLOWER, OTHER)), 0)


def follows(b: Any, tp: TopicPartition = A) -> None:
    b.services.replicas.partitions[tp].make_follower(state(2, 1, (2,)))


def stopped(b: Any) -> None:
    b.services.replicas.partitions[A].stop(delete=False)


def deleted(b: Any) -> None:
    b.services.replicas.partitions[A].stop(delete=True)


def offline(b: Any) -> None:
    b.services.replicas.partitions[A].go_offline()


def in_another_directory(b: Any) -> None:
    partition = b.services.replicas.partitions[A]
    partition.log_moved(partition.require_log())


CHANGES = [
    appended, deleted_below, leads_a_newer_epoch, follows, stopped, deleted, offline,
    in_another_directory,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_the_rest_and_is_looked_at(change: Callable[[Any], None]) -> None:
    @in_broker()
    async def checked(b: Any) -> None:
        f = await at_rest(b)
        f.ask(wait_ms=10_000)
        looks: list[object] = []
        b.services.completions.look = looks.append
        change(b)
        assert A not in f.resting
        assert looks == [f.feed], "the waiting fetch"

    checked()


async def at_rest(b: Any) -> Follower:
    """One record in A, which both followers have, and know to be committed."""
    await lead(b, replicas=(1, FOLLOWER, OTHER))
    f = Follower(b)
    append(b, A)
    partition = b.services.replicas.partitions[A]
    f.ask()
    b.services.replicas.follower_progress(of(A, 1), OTHER)
    f.ask([of(A, 1)])
    assert partition.high_watermark == 1
    assert f.resting == {A, B, C}
    return f


@in_broker()
async def test_an_isr_that_changes_ends_the_rest_and_who_rests_stays_in_it(b: Any) -> None:
    f = await at_rest(b)
    partition = b.services.replicas.partitions[A]
    await trio.sleep(LAG_MS / 1000 + 1)
    f.ask()
    partition.followers[OTHER].log_end_offset = 0
    change = partition.maybe_shrink(monotonic_ms())
    assert change is not None
    assert change.isr == (1, FOLLOWER)
    assert A in f.resting
    partition.isr_settled(change, change.zk_version, monotonic_ms())
    assert A not in f.resting


@in_broker()
async def test_a_fetch_that_comes_by_another_way_ends_the_rest(b: Any) -> None:
    f = await at_rest(b)
    b.services.replicas.follower_progress(of(A, 0), FOLLOWER)
    assert A not in f.resting
    f.ask([of(A, 0)])
    assert f.bytes == SIZE


@in_broker()
async def test_its_fetches_keep_the_follower_in_the_isr(b: Any) -> None:
    """The time of the last fetch counts when records come that the follower does not have yet."""
    f = await at_rest(b)
    partition = b.services.replicas.partitions[A]
    await trio.sleep(10 * LAG_MS / 1000)
    f.ask()
    now_ms = monotonic_ms()
    b.services.replicas.follower_progress(of(A, 1), OTHER)
    append(b, A)
    assert partition.maybe_shrink(now_ms + LAG_MS) is None
    change = partition.maybe_shrink(now_ms + LAG_MS + 1)
    assert change is not None
    assert change.isr == (1,)


@in_broker()
async def test_who_no_longer_fetches_leaves_the_isr(b: Any) -> None:
    """Rest alone is no sign of life."""
    await at_rest(b)
    partition = b.services.replicas.partitions[A]
    await trio.sleep(LAG_MS / 1000 + 1)
    b.services.replicas.follower_progress(of(A, 1), OTHER)
    append(b, A)
    change = partition.maybe_shrink(monotonic_ms())
    assert change is not None
    assert change.isr == (1, OTHER)


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
        assert len(f.resting) == count + 1
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
