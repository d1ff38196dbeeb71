"""Appending, reading, rolling, truncating; a failed write leaves no trace."""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.broker.log import segment as segment_module
from highwater.broker.log.checkpoints import LEADER_EPOCHS, decode_epochs
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import UnexpectedOffsetError
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.records import LOG_APPEND_TIME, BatchHeader, batches, check_crc
from tests.unit.broker.log.conftest import (
    OWN,
    START_MS,
    Logs,
    batch,
    bytes_of,
    check_indexes,
    content,
    follow,
    headers_of,
    largest_file,
    lead,
    sequence_of,
)


def test_a_leader_gives_offsets_and_its_epoch(logs: Logs) -> None:
    log = logs.open()
    assert lead(log, batch(3), epoch=4)[:2] == (0, 2)
    assert lead(log, batch(2), epoch=5)[:2] == (3, 4)
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers_of(log)] == [
        (0, 2, 4),
        (3, 4, 5),
    ]
    assert log.log_end_offset == 5
    assert log.epochs.entries == [(4, 0), (5, 3)]
    data = content(log.read(0, 1 << 20, log.log_end_offset))
    assert all(check_crc(data, header) for header in batches(data))


def test_a_new_leaders_epoch_is_in_the_file_once_it_has_a_batch(logs: Logs) -> None:
    log = logs.open()
    file = Path(logs.folder) / LEADER_EPOCHS
    log.epochs.lead(7, 0)
    assert not file.exists()
    lead(log, batch(1), epoch=7)
    assert decode_epochs(file.read_bytes()) == [(7, 0)]


def test_a_follower_copies_the_leaders_bytes(logs: Logs, tmp_path: object) -> None:
    leader, follower = logs.open(), Logs(f"{tmp_path}/other-0").open()
    for n in range(5):
        lead(leader, batch(n + 1), epoch=n // 2)
    found = leader.read(0, 1 << 20, leader.log_end_offset)
    follow(follower, content(found) + b"half a batch")
    assert bytes_of(follower) == bytes_of(leader)
    assert follower.log_end_offset == leader.log_end_offset
    assert follower.epochs.entries == leader.epochs.entries


def test_a_follower_takes_nothing_below_its_end(logs: Logs) -> None:
    log = logs.open()
    data = batch(3)
    lead(log, data)
    before = bytes_of(log)
    with pytest.raises(UnexpectedOffsetError):
        follow(log, bytes(data))
    assert bytes_of(log) == before


def test_an_empty_follower_may_begin_inside_a_batch(logs: Logs, tmp_path: object) -> None:
    leader, follower = logs.open(), Logs(f"{tmp_path}/other-0").open()
    lead(leader, batch(10))
    leader.advance_log_start(4)
    follower.truncate_fully_and_start_at(4)
    follow(follower, content(leader.read(4, 1 << 20, 10)))
    assert (follower.log_start_offset, follower.log_end_offset) == (4, 10)
    assert content(follower.read(4, 1 << 20, 10)) == bytes_of(leader)


def test_offsets_out_of_range(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(10))
    log.advance_log_start(3)
    for offset in (2, 11):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100, 10)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(10, 100, 10).size == 0
    assert log.read(5, 100, 5).size == 0
    assert log.read(3, 100, 10).size > 0


def test_a_batch_beyond_the_limit_is_not_given_in_part(logs: Logs) -> None:
    log = logs.open()
    sizes = [len(batch(5)), len(batch(5))]
    lead(log, batch(5))
    lead(log, batch(5))
    assert log.read(0, 1 << 20, 10).size == sum(sizes)
    for limit in range(5, 10):
        assert log.read(0, 1 << 20, limit).size == sizes[0]
    for limit in range(5):
        assert log.read(0, 1 << 20, limit).size == 0


def test_min_one(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(1, size=500))
    assert log.read(0, 10, 1, min_one=False).size == 0
    assert log.read(0, 10, 1, min_one=True).size == log.size


class Model:
    """A log as a list of batches: it finds the answer of `read` by looking at all of them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.segments = [
            (s.base_offset, list(batches(s.file.read(0, s.size)))) for s in log.segments
        ]

    def read(self, offset: int, max_bytes: int, limit: int, min_one: bool) -> list[BatchHeader]:
        for _, headers in self.segments:
            if not headers or headers[-1].last_offset < offset:
                continue
            start = bisect_left([h.last_offset for h in headers], offset)
            found: list[BatchHeader] = []
            for header in headers[start:]:
                fits = sum(h.size for h in found) + header.size <= max_bytes
                if header.last_offset >= limit or not (fits or (min_one and not found)):
                    break
                found.append(header)
            return found
        return []

    def segment_of(self, offset: int) -> int:
        return max(base for base, _ in self.segments if base <= offset)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    appends=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900)), min_size=1, max_size=60),
    interval=st.sampled_from([0, 200, 4096]), segment_bytes=st.sampled_from([1500, 6000, 1 << 20]),
    tail=st.sampled_from([2, 10, 2048]), reopen=st.booleans(), data=st.data(),
)  # fmt: skip
def test_every_read_is_what_the_batches_say(
    appends: list[tuple[int, int]],
    interval: int,
    segment_bytes: int,
    tail: int,
    reopen: bool,
    data: st.DataObject,
) -> None:
    config = LogConfig(index_interval_bytes=interval, segment_bytes=max(segment_bytes, 9 * 950))
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(segment_module, "TAIL_BATCHES", tail)
        logs = Logs(f"{folder}/topic-0")
        log = logs.open(config)
        for count, size in appends:
            lead(log, batch(count, size=size // count))
        if reopen:
            log.close()
            log = logs.open(config, clean=True)
        model = Model(log)
        for _ in range(20):
            offset = data.draw(st.integers(0, log.log_end_offset))
            limit = data.draw(st.integers(offset, log.log_end_offset))
            max_bytes = data.draw(st.integers(0, 5000))
            min_one = data.draw(st.booleans())
            expected = model.read(offset, max_bytes, limit, min_one)
            found = log.read(offset, max_bytes, limit, min_one)
            assert found.size == sum(h.size for h in expected)
            all_of_it = model.read(offset, 1 << 30, limit, min_one)
            assert found.available == sum(h.size for h in all_of_it)
            assert found.segment == model.segment_of(offset)
            assert found.limit_segment == model.segment_of(limit)
            if expected:
                assert found.position == expected[0].position
                assert found.next_offset >= expected[-1].last_offset + 1
                got = [h.base_offset for h in batches(content(found))]
                assert got == [h.base_offset for h in expected]
        log.close()


def test_rolling_by_size_and_time(logs: Logs) -> None:
    size = len(batch(1))
    log = logs.open(LogConfig(segment_bytes=2 * size, segment_ms=1000))
    for n in range(5):
        lead(log, batch(1, timestamp=START_MS + n))
    assert [s.base_offset for s in log.segments] == [0, 2, 4]
    lead(log, batch(1, timestamp=START_MS + 1004))
    assert len(log.segments) == 3
    log = log_with(log, segment_bytes=1 << 20)
    lead(log, batch(1, timestamp=START_MS + 1005))
    assert [s.base_offset for s in log.segments] == [0, 2, 4, 6]
    assert log.producers.snapshots == [2, 4, 6]


def log_with(log: Log, **changes: int) -> Log:
    log.config = LogConfig(**{"segment_ms": 1000, **changes})  # type: ignore[arg-type]
    return log


def test_a_batch_larger_than_a_segment_is_refused_to_clients_only(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=200))
    large = batch(1, size=300)
    with pytest.raises(ApiError) as caught:
        lead(log, large)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    follow(log, bytes(large))
    assert log.log_end_offset == 1


def test_a_follower_keeps_its_own_segments(logs: Logs, tmp_path: object) -> None:
    leader = logs.open()
    follower = Logs(f"{tmp_path}/other-0").open(LogConfig(segment_bytes=3 * len(batch(2))))
    for _ in range(10):
        lead(leader, batch(2))
    follow(follower, content(leader.read(0, 1 << 20, 20)))
    assert [s.base_offset for s in follower.segments] == [0, 6, 12, 18]
    assert bytes_of(follower) == bytes_of(leader)


@pytest.mark.parametrize("kept", [0, 1, 60, 61, 80])
def test_a_short_write_leaves_no_trace(logs: Logs, kept: int) -> None:
    log = logs.open()
    lead(log, batch(2, producer=(7, 0, 0)), epoch=1)
    size, before = log.size, bytes_of(log)
    retry = batch(2, producer=(7, 0, 2))
    with largest_file(size + kept), pytest.raises(OSError):
        lead(log, bytearray(retry), epoch=2)
    assert (log.size, log.log_end_offset, log.epochs.entries) == (size, 2, [(1, 0)])
    assert sequence_of(log, 7) == [(1, 1)]
    assert bytes_of(log) == before
    assert lead(log, retry, epoch=2)[:2] == (2, 3)
    assert sequence_of(log, 7) == [(1, 1), (3, 3)]


def test_a_roll_that_fails_leaves_no_trace(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.open(LogConfig(segment_bytes=len(batch(1))))
    lead(log, batch(1))
    with largest_file(0), pytest.raises(OSError):
        lead(log, batch(1))
    assert len(log.segments) == 1
    assert log.log_end_offset == 1
    assert lead(log, batch(1))[:2] == (1, 1)
    assert len(log.segments) == 2


def test_log_append_time(logs: Logs) -> None:
    log = logs.open(LogConfig(message_timestamp_type="LogAppendTime"))
    info = lead(log, batch(2, timestamp=5), now_ms=START_MS + 9)
    assert info.log_append_time_ms == START_MS + 9
    (header,) = headers_of(log)
    assert header.max_timestamp == START_MS + 9
    assert check_crc(bytes_of(log), header)
    assert log.max_timestamp_offset() == (START_MS + 9, 0, 0)


def test_clients_do_not_set_log_append_time(logs: Logs) -> None:
    log = logs.open(LogConfig(message_timestamp_type="LogAppendTime"))
    with pytest.raises(ApiError) as caught:
        lead(log, batch(1, attributes=LOG_APPEND_TIME))
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert log.log_end_offset == 0


def test_a_clients_bit_of_log_append_time_is_cleared_on_other_topics(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(2, timestamp=5, attributes=LOG_APPEND_TIME))
    (header,) = headers_of(log)
    assert (header.timestamp_type, header.max_timestamp) == (0, 6)
    assert check_crc(bytes_of(log), header)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 100), min_size=1, max_size=3),
    segment_bytes=st.sampled_from([300, 1000, 1 << 20]),
)
def test_after_a_truncation_the_log_is_as_if_it_had_never_been_longer(
    counts: list[int], cuts: list[int], segment_bytes: int
) -> None:
    config = LogConfig(index_interval_bytes=100, segment_bytes=segment_bytes)
    with tempfile.TemporaryDirectory() as folder:
        log = Logs(f"{folder}/a-0").open(config)
        twin = Logs(f"{folder}/b-0").open(config)
        sequence = 0
        for n, count in enumerate(counts):
            lead(log, batch(count, producer=(n % 2, 0, _next(log, n % 2))), epoch=n // 3)
            sequence += count
        log.write_all()
        for cut in cuts:
            cut = min(cut, log.log_end_offset)
            log.truncate_to(cut)
            assert log.log_end_offset <= cut
            assert all(h.last_offset < cut for h in headers_of(log))
        for header in headers_of(log):
            at = log.read(header.base_offset, 1, log.log_end_offset)
            follow(twin, content(at))
        assert bytes_of(log) == bytes_of(twin)
        assert log.log_end_offset == twin.log_end_offset
        for producer_id in (0, 1):
            assert sequence_of(log, producer_id)[-1:] == sequence_of(twin, producer_id)[-1:]
        kept = [e for e in twin.epochs.entries if e in log.epochs.entries]
        assert kept == twin.epochs.entries == log.epochs.entries
        for _ in range(9):
            lead(log, batch(2), epoch=50)
        assert headers_of(log)[-1].last_offset == log.log_end_offset - 1
        check_indexes(log)
        log.close()
        twin.close()


def _next(log: Log, producer_id: int) -> int:
    known = sequence_of(log, producer_id)
    return known[-1][0] + 1 if known else 0


def test_truncation_below_everything(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(10))
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (100, 100, 0)
    assert log.epochs.entries == []
    lead(log, batch(1), epoch=3)
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert lead(log, batch(1), epoch=4)[:2] == (50, 50)


@pytest.mark.parametrize("killed", [True, False])
def test_a_log_that_starts_anew_keeps_nothing(logs: Logs, killed: bool) -> None:
    """A follower below its leader's start continues as that leader's log does, after a kill too."""
    config = LogConfig(segment_bytes=len(batch(2, producer=(7, 0, 0))))
    log = logs.open(config)
    for n in range(3):
        lead(log, batch(2, producer=(7, 0, 2 * n)), epoch=n)
    log.write_all()
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 0)
    assert [segment.base_offset for segment in log.segments] == [100]
    if not killed:
        log.close()
    log = logs.open(config, clean=not killed)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log.epochs.entries == []
    assert log.producers.get(7) is None
    with pytest.raises(ApiError) as caught:
        log.read(99, 1 << 20, log.log_end_offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    lead(log, batch(1, producer=(7, 0, 6)), epoch=3)
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers_of(log)] == [(100, 3)]
    assert log.epochs.entries == [(3, 100)]


def test_truncating_at_the_end_drops_an_epoch_that_wrote_nothing(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(4), epoch=1)
    log.epochs.assign(2, 4)
    log.truncate_to(4)
    assert log.epochs.entries == [(1, 0)]


def test_timestamps(logs: Logs) -> None:
    log = logs.open(LogConfig(index_interval_bytes=0, segment_bytes=400))
    times = [100, 120, 140, 160, 300, 200, 220, 310, 320, 500, 400, 600]
    for time in times:
        lead(log, batch(2, timestamp=START_MS + time))
    for wanted in range(90, 620, 10):
        expected = next(
            (
                (START_MS + time + n, 2 * index + n)
                for index, time in enumerate(times)
                for n in range(2)
                if time + n >= wanted
            ),
            None,
        )
        found = log.offset_for_timestamp(START_MS + wanted)
        assert (found and found[:2]) == expected
    assert log.max_timestamp_offset() == (START_MS + 601, 23, 0)
    log.truncate_to(20)
    assert log.max_timestamp_offset() == (START_MS + 501, 19, 0)


def test_retention_by_size_and_time(logs: Logs) -> None:
    size = len(batch(1))
    log = logs.open(LogConfig(segment_bytes=size, retention_ms=1000, retention_bytes=3 * size))
    for n in range(6):
        lead(log, batch(1, timestamp=START_MS + 100 * n))
    assert log.delete_old_segments(START_MS, high_watermark=2) == 2  # size, as far as the HW lets
    assert log.delete_old_segments(START_MS, high_watermark=6) == 1
    assert (log.log_start_offset, len(log.segments)) == (3, 3)
    assert log.delete_old_segments(START_MS + 1401, high_watermark=6) == 2
    assert log.log_start_offset == 5
    assert log.delete_old_segments(START_MS + 9999, high_watermark=6) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (6, 6, 0)
    assert log.delete_old_segments(START_MS + 99999, high_watermark=6) == 0
    assert lead(log, batch(1))[:2] == (6, 6)
    assert log.epochs.entries == [(0, 6)]


def test_retention_of_what_is_below_the_log_start(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=len(batch(2)), cleanup_policy="compact"))
    for _ in range(4):
        lead(log, batch(2), origin=OWN)
    log.advance_log_start(4)
    assert log.delete_old_segments(START_MS * 2, high_watermark=8) == 2
    log.advance_log_start(5)
    assert log.delete_old_segments(START_MS * 2, high_watermark=8) == 0
    assert [s.base_offset for s in log.segments] == [4, 6]
    assert log.log_start_offset == 5


def test_a_reader_keeps_a_deleted_segment(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=len(batch(1)), retention_bytes=0))
    kept: list[object] = []
    log.hooks.discard = lambda log, files, paths: kept.extend(files)  # type: ignore[method-assign]
    for _ in range(3):
        lead(log, batch(1))
    slice_ = log.read(0, 1000, 3)
    expected = content(slice_)
    log.delete_old_segments(START_MS, high_watermark=3)
    assert content(slice_) == expected
    assert len(kept) == 3


async def test_flush_moves_the_recovery_point(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=len(batch(1)), flush_messages=2))
    for n in range(4):
        assert log.flush_due == (n >= 2)
        lead(log, batch(1))
    await log.flush(2)
    assert log.recovery_point == 2
    await log.flush()
    assert (log.recovery_point, log.unflushed) == (4, 0)
    log.truncate_to(1)
    assert log.recovery_point == 1


async def test_a_flush_does_not_vouch_for_what_came_after_a_truncation(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open()
    lead(log, batch(10))

    async def slow_sync(path: str) -> None:
        if log.log_end_offset == 10:
            log.truncate_to(0)
            lead(log, batch(10), epoch=1)
            log.log_end_offset = 10

    monkeypatch.setattr(log.disk, "sync_dir", slow_sync)
    await log.flush()
    assert log.recovery_point == 0


def test_the_largest_timestamp_after_a_truncation(logs: Logs) -> None:
    log = logs.open(LogConfig(index_interval_bytes=0))
    for time in (100, 500, 300, 600, 200):
        lead(log, batch(1, timestamp=START_MS + time))
    expected = {4: (600, 3), 3: (500, 1), 2: (500, 1), 1: (100, 0)}
    for end, (time, offset) in expected.items():
        log.truncate_to(end)
        assert log.max_timestamp_offset() == (START_MS + time, offset, 0)
        assert log.segments[0].largest_timestamp == START_MS + time


def test_a_read_passes_over_what_compaction_removed(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=len(batch(2))))
    follow(log, bytes(batch(2)))
    later = bytearray(batch(2))
    later[:8] = (10).to_bytes(8, "big")
    follow(log, bytes(later))
    follow(log, bytes(later[:7]) + b"\x14" + bytes(later[8:]))
    assert [s.base_offset for s in log.segments] == [0, 10, 20]
    for offset in range(2, 12):
        (header,) = batches(content(log.read(offset, 1, 22)))
        assert header.base_offset == 10
    assert log.read(5, 1000, 8).size == 0
    for offset in range(12, 20):
        (header,) = batches(content(log.read(offset, 1, 22)))
        assert header.base_offset == 20
