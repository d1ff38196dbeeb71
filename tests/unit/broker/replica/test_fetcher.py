"""A fetcher's reactions to a leader's answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from highwater.broker.log.log_manager import LogManager
from highwater.broker.replica import fetcher as replica_fetcher
from highwater.broker.replica.fetcher import ReplicaFetcher
from highwater.broker.replica.partition import LeaderAndIsr, Partition
from highwater.broker.replica.replica_manager import ReplicaManager
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.config import Config
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.codec import decode_request, encode_response
from highwater.kafka.wire.fetch import FetchedPartition
from highwater.kafka.wire.header import parse_request_header, response_header
from highwater.kafka.wire.messages import ListOffsetsResponse
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.world.real import RealWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEADER, FOLLOWER = BrokerId(2), BrokerId(1)
STATE = LeaderAndIsr(
    LEADER, LeaderEpoch(0), ControllerEpoch(1), (2, 1), ZkVersion(0), (2, 1), is_new=True
)


def _failed(log_dir: str, error: OSError) -> None:
    raise AssertionError(f"{log_dir}: {error}")


async def replica_manager(folder: Path) -> ReplicaManager:
    config, world = Config(broker_id=int(FOLLOWER), log_dirs=(str(folder),)), RealWorld(seed=1)
    logs = LogManager(world.disk, world.clock, config.log_dirs, config, _failed)
    await logs.load("c", FOLLOWER)
    return ReplicaManager(
        config, world, logs, FOLLOWER,
        is_alive=lambda _: True, completed=lambda *_: None, zk=lambda: None,
    )  # fmt: skip


def hosted(manager: ReplicaManager, tp: TopicPartition) -> Partition:
    partition = manager._host(tp, is_new=True)
    partition.make_follower(STATE)
    return partition


def sent(tp: TopicPartition, base_offset: int, n: int) -> FetchedPartition:
    records = [Record(None, b"value", 1, ()) for _ in range(n)]
    batch = build_batch(records, base_offset=base_offset, partition_leader_epoch=0)
    data = memoryview(batch)
    return FetchedPartition(tp, 0, 0, 0, 0, data, len(data))


async def test_a_log_that_does_not_fit_its_leaders_stops_that_partition_alone(
    tmp_path: Path,
) -> None:
    manager = await replica_manager(tmp_path)
    broken, sound = TopicPartition("broken", 0), TopicPartition("sound", 0)
    partitions = {tp: hosted(manager, tp) for tp in (broken, sound)}
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    for partition in partitions.values():
        fetcher.add(partition, ("nowhere", 1))
        fetcher._append(partition.tp, fetcher.states[partition.tp], sent(partition.tp, 0, 3))
    assert [fetcher.states[tp].offset for tp in (broken, sound)] == [3, 3]

    fetcher._append(broken, fetcher.states[broken], sent(broken, 1, 4))  # begins below our end
    fetcher._append(sound, fetcher.states[sound], sent(sound, 3, 1))

    assert list(fetcher.states) == [sound]
    assert partitions[broken].require_log().log_end_offset == 3
    assert partitions[sound].require_log().log_end_offset == 4
    fetcher.add(partitions[broken], ("nowhere", 1))
    assert fetcher.states[broken].truncating, "a new term brings it in line first"


@pytest.mark.parametrize(("isr", "end"), [((2, 1), 3), ((2,), 1)])
async def test_a_doubtful_log_is_taken_anew_outside_of_the_isr(
    tmp_path: Path, isr: tuple[int, ...], end: int
) -> None:
    manager = await replica_manager(tmp_path)
    partition = hosted(manager, TopicPartition("t", 0))
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    fetcher.add(partition, ("nowhere", 1))
    for n in range(3):
        fetcher._append(partition.tp, fetcher.states[partition.tp], sent(partition.tp, n, 1))
    log = partition.require_log()
    log.doubtful_from = 1
    partition.make_follower(replace(STATE, leader_epoch=LeaderEpoch(1), isr=isr))
    fetcher.add(partition, ("nowhere", 1))
    assert log.log_end_offset == fetcher.states[partition.tp].offset == end
    assert (log.doubtful_from is None) == (end == 1)
    partition.make_leader(replace(STATE, leader=FOLLOWER, leader_epoch=LeaderEpoch(2)), 0)
    assert log.doubtful_from is None


async def test_the_first_delays_are_short(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """A follower often hears of a leader before the leader does, and acks=all waits for the
    follower."""
    manager = await replica_manager(tmp_path)
    partition = hosted(manager, TopicPartition("t", 0))
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    fetcher.add(partition, ("nowhere", 1))
    state = fetcher.states[partition.tp]

    def delay_ms() -> int:
        fetcher._delay(state)
        return round((state.ready_at - trio.current_time()) * 1000)

    assert [delay_ms() for _ in range(8)] == [20, 40, 80, 160, 320, 640, 1000, 1000]
    fetcher._append(partition.tp, state, sent(partition.tp, 0, 3))
    assert delay_ms() == 20


async def test_what_is_added_while_a_fetch_is_gathered_is_not_left_out_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would interrupt that fetch, which may last for replica.fetch.wait.max.ms."""
    monkeypatch.setattr(replica_fetcher, "AT_ONCE", 1)
    manager = await replica_manager(tmp_path)
    *early, late = (hosted(manager, TopicPartition("t", n)) for n in range(9))
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    for partition in early:
        fetcher.add(partition, ("nowhere", 1))
    no_connection: Any = None  # to ask would be an error
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher._fetch, no_connection)
        for _ in range(3):  # it has begun, and has eight turns
            await trio.lowlevel.checkpoint()
        fetcher.add(late, ("nowhere", 1))


async def test_more_fetchers_share_the_partitions_anew_and_each_has_one(tmp_path: Path) -> None:
    manager = await replica_manager(tmp_path)
    tps = [TopicPartition("t", n) for n in range(12)]
    for tp in tps:
        hosted(manager, tp)
    fetchers = manager.fetchers
    fetchers.follow(dict.fromkeys(tps, ("nowhere", 1)))
    assert fetchers.count == 1
    for wanted in (4, 2):
        manager.config.change({"num_replica_fetchers": wanted})
        fetchers.resize()
        holders = [[f for f in fetchers._fetchers.values() if tp in f.states] for tp in tps]
        assert all(len(of) == 1 for of in holders), "fetched once"
        assert len({of[0].number for of in holders}) == wanted
        assert all(fetchers._owner[tp] is of[0] for tp, of in zip(tps, holders, strict=True))


Answer = tuple[ErrorCode, int]
"""The answer of ListOffsets: an error, or the start (-2) or end (-1) of the leader's log."""


def leader_of(
    answers: dict[int, Answer], may_answer: trio.Event
) -> Callable[[trio.SocketStream], Awaitable[None]]:
    """A broker that answers ListOffsets, and nothing else."""
    topic = ListOffsetsResponse.ListOffsetsTopicResponse

    async def serve(stream: trio.SocketStream) -> None:
        data = b""
        async for more in stream:
            data += more
            while len(data) >= 4 and len(data) >= 4 + unpack(">i", data[:4])[0]:
                size = unpack(">i", data[:4])[0]
                frame, data = data[4 : 4 + size], data[4 + size :]
                key, version, correlation_id, _, at = parse_request_header(frame)
                asked = decode_request(key, version, frame[at:]).topics[0]
                await may_answer.wait()
                error, offset = answers[asked.partitions[0].timestamp]
                found = topic.ListOffsetsPartitionResponse(
                    partition_index=0, error_code=int(error), timestamp=-1, offset=offset,
                    leader_epoch=0,
                )  # fmt: skip
                body = ListOffsetsResponse(topics=[topic(name=asked.name, partitions=[found])])
                answer = response_header(key, version, correlation_id)
                answer += encode_response(body, version)
                await stream.send_all(pack(">i", len(answer)) + answer)

    return serve


@asynccontextmanager
async def out_of_range(
    folder: Path, start: Answer, end: Answer, *, may_answer: trio.Event | None = None
) -> AsyncIterator[tuple[ReplicaFetcher, Partition, ClientConnection]]:
    """A follower with the offsets 0 to 3, HW 2, and a leader whose log is elsewhere."""
    manager = await replica_manager(folder)
    partition = hosted(manager, TopicPartition("t", 0))
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    fetcher.add(partition, ("nowhere", 1))
    fetcher._append(partition.tp, fetcher.states[partition.tp], sent(partition.tp, 0, 2))
    fetcher._append(partition.tp, fetcher.states[partition.tp], sent(partition.tp, 2, 2))
    partition.append_fetched(memoryview(b""), [], 2, 0)
    assert partition.high_watermark == 2
    async with trio.open_nursery() as nursery:
        if may_answer is None:
            may_answer = trio.Event()
            may_answer.set()
        serve = leader_of({-1: end, -2: start}, may_answer)
        (listener,) = await nursery.start(lambda task_status: trio.serve_tcp(
            serve, 0, host="127.0.0.1", task_status=task_status,
        ))  # fmt: skip
        port = listener.socket.getsockname()[1]
        connection = await ClientConnection.open(manager.world.network, "127.0.0.1", port, None)
        yield fetcher, partition, connection
        connection.close()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("start", "end", "place", "high_watermark"),
    [
        (6, 9, (6, 6), 6),  # DeleteRecords or retention went on without us
        (9, 9, (9, 9), 9),  # and left nothing
        (5, 5, (5, 5), 5),
        (4, 9, (0, 4), 2),  # our end is its start: nothing is missing
        (0, 9, (0, 4), 2),  # it is in range again
        (0, 4, (0, 4), 2),
        (0, 2, (0, 2), 2),  # an unclean election
        (0, 0, (0, 0), 0),
        (2, 2, (0, 2), 2),
    ],
)
async def test_a_follower_out_of_its_leaders_range_finds_its_place(
    tmp_path: Path, start: int, end: int, place: tuple[int, int], high_watermark: int
) -> None:
    answers = (ErrorCode.NONE, start), (ErrorCode.NONE, end)
    async with out_of_range(tmp_path, *answers) as (fetcher, partition, connection):
        await fetcher._find_place(connection, partition.tp)
        log = partition.require_log()
        assert (log.log_start_offset, log.log_end_offset) == place
        assert partition.high_watermark == high_watermark
        assert fetcher.states[partition.tp].offset == place[1], "where it fetches next"


@pytest.mark.parametrize(
    ("isr", "high_watermark", "leader_end", "is_asked"),
    [
        ((2,), 2, 4, True),  # its records 2 and 3 may be others than were committed
        ((2,), 2, 9, False),  # the leader has all of this log's epoch
        ((2,), 2, 3, False),  # its last batch is cut away
        ((2,), 4, 4, False),  # all its records are known to be committed
        ((2, 1), 2, 4, True),  # it may have left the ISR since the leader was elected
    ],
)
@pytest.mark.parametrize(
    ("start", "starts_anew"),
    [
        ((ErrorCode.NONE, 4), True),
        ((ErrorCode.NONE, 2), False),
        ((ErrorCode.UNKNOWN_SERVER_ERROR, -1), None),
    ],
)
async def test_a_log_that_ends_where_its_leaders_starts_is_kept_only_if_it_is_proved(
    tmp_path: Path,
    isr: tuple[int, ...],
    high_watermark: int,
    leader_end: int,
    is_asked: bool,
    start: Answer,
    starts_anew: bool | None,
) -> None:
    async with out_of_range(tmp_path, start, start) as (fetcher, partition, connection):
        partition.append_fetched(memoryview(b""), [], high_watermark, 0)
        partition.make_follower(replace(STATE, isr=isr))  # it has been away
        fetcher.add(partition, ("nowhere", 1))
        tp, state, log = partition.tp, fetcher.states[partition.tp], partition.require_log()
        fetcher._truncate(tp, state, 0, 0, leader_end)
        assert not state.truncating
        assert fetcher._is_unproved(tp, leader_end) is is_asked
        if is_asked:
            state.truncating, end = True, log.log_end_offset
            await fetcher._prove(connection, {tp: state})
            place = (4, 4) if starts_anew else (0, end)
            assert (log.log_start_offset, log.log_end_offset) == place
            assert state.truncating is (starts_anew is None), "without an answer it is asked again"
            assert (state.offset, partition.high_watermark) == (place[1], 4 if starts_anew else 2)


@pytest.mark.parametrize("which", ["start", "end"])
async def test_a_leader_that_does_not_say_where_its_log_lies_is_asked_again_later(
    tmp_path: Path, which: str
) -> None:
    unknown, known = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.NONE, 9)
    answers = (unknown, known) if which == "start" else (known, unknown)
    async with out_of_range(tmp_path, *answers) as (fetcher, partition, connection):
        await fetcher._find_place(connection, partition.tp)
        assert partition.require_log().log_end_offset == 4
        assert fetcher.states[partition.tp].ready_at > trio.current_time()


async def test_who_has_another_leader_meanwhile_keeps_its_log(tmp_path: Path) -> None:
    answers, may_answer = ((ErrorCode.NONE, 6), (ErrorCode.NONE, 9)), trio.Event()
    rig = out_of_range(tmp_path, *answers, may_answer=may_answer)
    async with rig as (fetcher, partition, connection):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher._find_place, connection, partition.tp)
            await trio.testing.wait_all_tasks_blocked()  # it has asked
            fetcher.add(partition, ("nowhere", 1))
            may_answer.set()
        log = partition.require_log()
        assert (log.log_start_offset, log.log_end_offset) == (0, 4)
        assert fetcher.states[partition.tp].offset == 4
