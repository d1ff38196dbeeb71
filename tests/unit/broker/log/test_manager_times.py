"""The periodic work of a log manager, at the times that its properties set."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from highwater.broker.log import checkpoints
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from tests.unit.broker.log.conftest import START_MS, Logs, batch, lead
from tests.unit.broker.log.test_log_manager import A, B, Broker, running, virtual_time

__all__ = ["virtual_time"]

Clock = trio.testing.MockClock
DAY_MS = 86_400_000


@pytest.mark.parametrize("property_", ["log_flush_interval_ms", "log_flush_scheduler_interval_ms"])
async def test_a_log_is_flushed_in_time(
    tmp_path: Path, virtual_time: Clock, property_: str
) -> None:
    manager = await Broker(tmp_path, **{property_: 4000}).load()
    async with running(manager):
        log = manager.get_or_create(A, manager.default_config)
        lead(log, batch(1))
        await trio.sleep(3.9)
        assert log.recovery_point == 0
        await trio.sleep(4.2)
        assert log.recovery_point == 1


async def test_a_topics_own_flush_ms_holds_for_it_alone(
    tmp_path: Path, virtual_time: Clock
) -> None:
    manager = await Broker(tmp_path, log_flush_interval_ms=60_000).load()
    async with running(manager):
        other = manager.get_or_create(B, manager.default_config)
        log = manager.get_or_create(A, manager.topic_config({"flush.ms": "500"}))
        for each in (log, other):
            lead(each, batch(1))
        await trio.sleep(1.1)
        assert (log.recovery_point, other.recovery_point) == (1, 0)
        log.config = manager.topic_config({})
        lead(log, batch(1))
        await trio.sleep(20)
        assert log.recovery_point == 1


async def test_without_flush_ms_nothing_is_flushed_in_time(
    tmp_path: Path, virtual_time: Clock
) -> None:
    manager = await Broker(tmp_path).load()
    async with running(manager):
        log = manager.get_or_create(A, manager.default_config)
        lead(log, batch(1))
        await trio.sleep(100_000)
        assert log.recovery_point == 0
        log.config = manager.topic_config({"flush.ms": "1000"})
        await trio.sleep(2.1)
        assert log.recovery_point == 1


async def test_retention_begins_after_the_initial_delay(
    tmp_path: Path, virtual_time: Clock
) -> None:
    size = len(batch(1))
    broker = Broker(
        tmp_path, log_initial_task_delay_ms=5000, log_retention_bytes=size, log_segment_bytes=size
    )
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    for _ in range(3):
        lead(log, batch(1))
    broker.marks[A] = 3
    async with running(manager):
        await trio.sleep(4.9)
        assert log.log_start_offset == 0
        await trio.sleep(0.2)
        assert log.log_start_offset == 2


@pytest.mark.parametrize(
    ("property_", "file"),
    [
        ("log_flush_offset_checkpoint_interval_ms", checkpoints.RECOVERY_POINTS),
        ("log_flush_start_offset_checkpoint_interval_ms", checkpoints.LOG_STARTS),
    ],
)
async def test_each_checkpoint_has_its_interval(
    tmp_path: Path, virtual_time: Clock, property_: str, file: str
) -> None:
    manager = await Broker(tmp_path, **{property_: 7000}).load()
    log = manager.get_or_create(A, manager.default_config)
    lead(log, batch(10))
    log.advance_log_start(3)
    await log.flush()
    async with running(manager):
        await trio.sleep(6.9)
        written = tmp_path / file
        assert not written.exists() or checkpoints.decode_offsets(written.read_bytes()) == {}
        await trio.sleep(0.2)
        offset = 10 if file == checkpoints.RECOVERY_POINTS else 3
        assert checkpoints.decode_offsets(written.read_bytes()) == {A: offset}


async def test_producers_are_looked_at_in_their_interval(
    tmp_path: Path, virtual_time: Clock
) -> None:
    broker = Broker(tmp_path, producer_id_expiration_check_interval_ms=9000)
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    lead(log, batch(1, producer=(1, 0, 0)))
    broker.clock.now_ms = START_MS + DAY_MS + 1
    async with running(manager):
        await trio.sleep(8.9)
        assert len(list(log.producers.entries)) == 1
        await trio.sleep(0.2)
        assert list(log.producers.entries) == []


def test_a_segment_is_rolled_when_its_index_is_full(logs: Logs) -> None:
    def segments(config: LogConfig) -> int:
        log: Log = logs.open(config)
        for _ in range(10):
            lead(log, batch(1))
        return len(log.segments)

    assert segments(LogConfig(index_interval_bytes=0, segment_index_bytes=60)) > 1
