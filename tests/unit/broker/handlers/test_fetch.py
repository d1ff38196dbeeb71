"""A fetch of more partitions than are read at once.

Nothing is missed between two turns.  A fetch that waits looks again only at partitions with news,
and at bytes that may be gone by then.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import trio

from highwater.broker.context import Delayed
from highwater.broker.handlers import fetch
from highwater.broker.log.parts import Origin
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.request.response import FileSlice, Response
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch
from highwater.kafka.wire.records import Record, build_batch
from tests.unit.broker.handlers.conftest import in_broker

TPS = [TopicPartition("t", number) for number in range(7)]
BATCH = bytes(build_batch([Record(b"k", b"v", 1, ())]))


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "AT_ONCE", 2)


async def lead_all(b: Any) -> None:
    await b.services.logs.load("the-cluster", 1)
    for tp in TPS:
        partition = b.services.replicas._host(tp, is_new=True)
        b.services.replicas.partitions[tp] = partition
        partition.make_leader(state(leader=1, epoch=0), 0)


def state(leader: int, epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(epoch), ControllerEpoch(1), (1, 2), ZkVersion(epoch), (1, 2)
    )


def append(b: Any, tp: TopicPartition) -> None:
    records = memoryview(bytearray(BATCH))
    replicas = b.services.replicas
    replicas.append(replicas.partition(tp), records, 1, Origin.CLIENT)


def request(min_bytes: int = 1) -> memoryview:
    asked = [FetchPartition(tp, -1, 0, -1, 0, 1 << 20) for tp in TPS]
    wanted = FetchRequest(2, 10_000, min_bytes, 1 << 20, 0, 0, -1, asked, [], "")
    return memoryview(build_fetch(wanted, 11))


class Fetching:
    """A follower's fetch, its answer and the time of the answer."""

    def __init__(self, b: Any) -> None:
        self.b = b
        self.answer: Response | None = None
        self.operation: Any = None
        self.at = 0.0

    async def run(self, body: memoryview) -> None:
        waiting = fetch.handle(self.b.context(fetch, 11), body)
        assert inspect.isawaitable(waiting), "it did not read in turns"
        reply = await waiting
        if isinstance(reply, Delayed):
            self.operation = reply.operation
            self.b.services.purgatories.submit(reply.operation, self._answered)
        else:
            assert isinstance(reply, Response)
            self._answered(reply)

    def _answered(self, response: Response) -> None:
        self.answer, self.at = response, trio.current_time()

    @property
    def bytes(self) -> int:
        assert self.answer is not None
        assert self.answer.parts is not None
        return sum(part.size for part in self.answer.parts if isinstance(part, FileSlice))

    @property
    def errors(self) -> tuple[str, ...]:
        assert self.answer is not None
        return self.answer.error_names


def reads_of(b: Any, monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    whole = b.services.replicas.read

    def read(asked: FetchPartition, *rest: Any) -> Any:
        found.append(asked.tp)
        return whole(asked, *rest)

    monkeypatch.setattr(b.services.replicas, "read", read)
    return found


async def running(b: Any, nursery: trio.Nursery) -> None:
    nursery.start_soon(b.services.completions.run)
    nursery.start_soon(b.services.purgatories.run)


@in_broker()
async def test_what_is_appended_between_two_turns_is_in_the_answer(
    b: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead_all(b)
    read = reads_of(b, monkeypatch)
    fetching = Fetching(b)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetching.run, request())
        while len(read) < 2:
            await trio.lowlevel.checkpoint()
        assert len(read) < len(TPS)
        append(b, TPS[0])  # which was read in the first turn
    assert fetching.bytes == len(BATCH)
    assert read.count(TPS[0]) == 2


@in_broker()
async def test_only_what_has_news_is_read_again(b: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await lead_all(b)
    fetching = Fetching(b)
    async with trio.open_nursery() as nursery:
        await running(b, nursery)
        await fetching.run(request(min_bytes=2 * len(BATCH)))
        read = reads_of(b, monkeypatch)
        append(b, TPS[3])
        await trio.sleep(0.1)
        assert fetching.answer is None
        append(b, TPS[5])
        await trio.sleep(0.1)
        assert fetching.bytes == 2 * len(BATCH)
        assert set(read) == {TPS[3], TPS[5]}
        nursery.cancel_scope.cancel()


@in_broker()
async def test_bytes_that_were_found_are_not_answered_by_one_who_leads_no_more(b: Any) -> None:
    await lead_all(b)
    fetching = Fetching(b)
    async with trio.open_nursery() as nursery:
        await running(b, nursery)
        append(b, TPS[0])
        await fetching.run(request(min_bytes=2 * len(BATCH)))
        assert fetching.answer is None
        b.services.replicas.partitions[TPS[0]].make_follower(state(leader=2, epoch=1))
        append(b, TPS[1])
        await trio.sleep(0.1)
        assert fetching.bytes == len(BATCH)
        assert fetching.errors == ("NOT_LEADER_OR_FOLLOWER",)
        nursery.cancel_scope.cancel()
