"""segment.jitter.ms and preallocate: the times at which segments are rolled, and the room that they
hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import NoHooks
from highwater.broker.log.recovery import load_log
from tests.unit.broker.log.conftest import START_MS, TP, Logs, batch, lead

MIB = 1 << 20


def blocks(logs: Logs) -> list[int]:
    """The bytes that each segment holds of the disk, used or not."""
    return [p.stat().st_blocks * 512 for p in sorted(Path(logs.folder).glob("*.log"))]


class Chance(NoHooks):
    """Always gives the same; keeps its arguments."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.limits: list[int] = []

    def jitter_ms(self, limit: int) -> int:
        self.limits.append(limit)
        return min(self.value, limit)


@pytest.mark.parametrize(("jitter", "drawn", "rolls_after"), [(0, 0, 1000), (400, 300, 700)])
def test_a_segment_is_rolled_sooner_by_its_jitter(
    logs: Logs, jitter: int, drawn: int, rolls_after: int
) -> None:
    chance = Chance(drawn)
    config = LogConfig(segment_ms=1000, segment_jitter_ms=jitter)
    log = load_log(logs.disk, logs.clock, logs.folder, TP, config, hooks=chance)
    lead(log, batch(timestamp=START_MS))
    lead(log, batch(timestamp=START_MS + rolls_after))
    assert len(log.segments) == 1
    lead(log, batch(timestamp=START_MS + rolls_after + 1))
    assert len(log.segments) == 2
    assert set(chance.limits) == {jitter}
    assert len(chance.limits) == 2, "each segment has its own"


def test_jitter_stays_within_the_segments_time(logs: Logs) -> None:
    chance = Chance(10**9)
    config = LogConfig(segment_ms=1000, segment_jitter_ms=5000)
    load_log(logs.disk, logs.clock, logs.folder, TP, config, hooks=chance)
    assert chance.limits == [1000]


def test_a_preallocated_segment_holds_its_room_until_it_is_rolled(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=MIB, preallocate=True))
    if blocks(logs) == [0]:
        pytest.skip("this file system reserves nothing")
    assert blocks(logs)[0] >= MIB
    lead(log, batch(size=1000))
    assert os.path.getsize(log.segments[0].file.path) == log.size
    log.roll(now_ms=START_MS)
    old, new = blocks(logs)
    assert old < 64 * 1024
    assert new >= MIB
    log.close()
    assert max(blocks(logs)) < 64 * 1024
    again = logs.open(LogConfig(segment_bytes=MIB, preallocate=True))
    assert again.log_end_offset == 1


def test_a_full_disk_is_told_when_the_room_is_taken(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open(LogConfig(segment_bytes=MIB, preallocate=True))
    lead(log, batch())
    log.config = LogConfig(segment_bytes=1 << 60, preallocate=True)
    with pytest.raises(OSError) as error:
        log.roll(now_ms=START_MS)
    assert error.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert [segment.base_offset for segment in log.segments] == [0]
