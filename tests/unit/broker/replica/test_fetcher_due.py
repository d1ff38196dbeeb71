"""The partitions that a fetcher looks at for its next fetch, and those that it leaves alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from struct import pack, unpack
from typing import Any, cast

import pytest
import trio

from highwater.broker import replica
from highwater.broker.replica.fetcher import ReplicaFetcher
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    parse_fetch,
    response_parts,
)
from highwater.kafka.wire.header import parse_request_header, response_header
from highwater.kafka.wire.records import validate_fetched
from tests.unit.broker.replica.test_fetcher import LEADER, hosted, replica_manager, sent

VERSION = 11
ROOM = str(Path(replica.__file__).parent)


class Leader:
    """A leader that answers each fetch at once, with what the test has given it."""

    def __init__(self) -> None:
        self.asked: list[FetchRequest] = []
        self.answers: list[list[FetchedPartition]] = []

    @property
    def named(self) -> dict[TopicPartition, FetchPartition]:
        """By the latest request."""
        return {p.tp: p for p in self.asked[-1].partitions}

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        async for more in stream:
            data += more
            while len(data) >= 4 and len(data) >= 4 + unpack(">i", data[:4])[0]:
                end = 4 + unpack(">i", data[:4])[0]
                await stream.send_all(self._answer(data[4:end]))
                data = data[end:]

    def _answer(self, frame: bytes) -> bytes:
        key, version, correlation, _, at = parse_request_header(frame)
        assert (key, version) == (1, VERSION)
        self.asked.append(parse_fetch(memoryview(frame)[at:], version))
        found = self.answers.pop(0) if self.answers else []
        body = b"".join(map(bytes, response_parts(version, 0, 7, found)))
        head = response_header(key, version, correlation)
        return pack(">i", len(head) + len(body)) + head + body


@asynccontextmanager
async def following(folder: Path, count: int) -> AsyncIterator[tuple[ReplicaFetcher, Leader]]:
    """A fetcher of so many empty partitions, which the session has."""
    manager, leader = await replica_manager(folder), Leader()
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            partial(trio.serve_tcp, leader.serve, 0, host="127.0.0.1")
        )
        address = "127.0.0.1", listener.socket.getsockname()[1]
        fetcher = ReplicaFetcher(manager, int(LEADER), 0, address)
        for n in range(count):
            fetcher.add(hosted(manager, TopicPartition("t", n)), address)
        with trio.fail_after(60):
            await fetcher._round()
            assert len(leader.named) == count
            yield fetcher, leader
        fetcher._disconnect()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["by an answer", "by its log start", "by nothing"])
async def test_a_round_makes_as_many_calls_with_10_other_partitions_as_with_1000(
    tmp_path: Path, how: str
) -> None:
    made = {}
    tp = TopicPartition("t", 3)
    for count in (10, 1000):
        async with following(tmp_path / str(count), count) as (fetcher, leader):
            await fetcher._round()
            assert not leader.named
            if how == "by an answer":
                leader.answers.append([sent(tp, 0, 3)])
                await fetcher._round()
            elif how == "by its log start":
                records = sent(tp, 0, 3).records
                partition = fetcher.manager.partitions[tp]
                partition.append_fetched(records, validate_fetched(records), 3, 2)
                fetcher.look_at(tp)
            made[count] = await calls(fetcher)
            assert leader.named.keys() == (set() if how == "by nothing" else {tp})
            assert not leader.asked[-1].forgotten
    assert made[10] == made[1000]


async def calls(fetcher: ReplicaFetcher) -> Counter[str]:
    """How often each function of `broker/replica` is called in a round."""
    made: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOM):
            made[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        await fetcher._round()
    finally:
        sys.setprofile(None)
    assert made
    return made


async def test_what_goes_is_forgotten_and_what_waits_is_left_out(tmp_path: Path) -> None:
    gone, waiting, _ = tps = [TopicPartition("t", n) for n in range(3)]
    async with following(tmp_path, len(tps)) as (fetcher, leader):
        refused = FetchedPartition(
            waiting, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1, -1, -1, b"", 0
        )
        leader.answers.append([refused])
        await fetcher._round()
        fetcher.states[waiting].ready_at = float("inf")
        fetcher.remove(gone)
        await fetcher._round()
        assert set(leader.asked[-1].forgotten) == {gone, waiting}
        await fetcher._round()
        assert not leader.asked[-1].forgotten
        fetcher.states[waiting].ready_at = 0
        await fetcher._round()
        assert leader.named.keys() == {waiting}


async def test_a_session_that_ends_makes_all_due(tmp_path: Path) -> None:
    async with following(tmp_path, 3) as (fetcher, leader):
        await fetcher._round()
        assert not leader.named
        fetcher._session.reset()
        await fetcher._round()
        assert len(leader.named) == 3


async def test_a_changed_property_makes_all_due(tmp_path: Path) -> None:
    async with following(tmp_path, 3) as (fetcher, leader):
        fetcher.manager.config.change({"replica_fetch_max_bytes": 73})
        await fetcher._round()
        assert [p.max_bytes for p in leader.named.values()] == [73] * 3


async def test_the_others_wait_no_longer_than_what_was_left_out_is_delayed(tmp_path: Path) -> None:
    new, _ = (TopicPartition("t", n) for n in range(2))
    async with following(tmp_path, 2) as (fetcher, leader):
        most = fetcher.manager.config.replica_fetch_wait_max_ms
        assert leader.asked[-1].max_wait_ms == most
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # it is not the leader yet
        leader.answers.append([FetchedPartition(new, unknown, -1, -1, -1, b"", 0)])
        await fetcher._round()
        await fetcher._round()
        assert new not in leader.named
        assert leader.asked[-1].max_wait_ms <= 20
        fetcher.states[new].truncating, fetcher.states[new].ready_at = True, 0.0
        fetcher.look_at(new)
        await fetcher._fetch(cast(ClientConnection, fetcher._connection))
        assert leader.asked[-1].max_wait_ms == 0
        fetcher.states[new].truncating = False
        await fetcher._round()
        assert new in leader.named
        assert leader.asked[-1].max_wait_ms == most
