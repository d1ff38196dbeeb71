"""New partitions' logs: in a worker thread, evenly, and past a directory that fails."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from highwater.broker.log.log_config import LogConfig
from highwater.kafka.types import TopicPartition
from highwater.world.real.disk import RealDisk
from tests.unit.broker.log.test_log_manager import Broker

MANY = {TopicPartition("t", n): LogConfig() for n in range(23)}


async def test_many_are_made_off_the_loop_and_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    make_dirs = RealDisk.make_dirs

    def noted(disk: RealDisk, path: str) -> None:
        threads.add(threading.get_ident())
        make_dirs(disk, path)

    manager = await Broker(tmp_path / "1", tmp_path / "2").load()
    monkeypatch.setattr(RealDisk, "make_dirs", noted)
    await manager.creation.create(MANY)
    assert len(threads) > 0
    assert threading.get_ident() not in threads
    assert manager.logs.keys() == MANY.keys()
    counts = Counter(map(manager.dir_of, manager.logs.values()))
    assert sorted(counts.values()) == [11, 12]
    known = dict(manager.logs)
    assert all(manager.get_or_create(tp, LogConfig()) is known[tp] for tp in MANY)


async def test_it_is_told_when_many_are_made(tmp_path: Path) -> None:
    manager, told = await Broker(tmp_path).load(), []
    manager.creation.grown = lambda: told.append(len(manager.logs))
    await manager.creation.create(MANY)
    assert told == []
    await manager.creation.create({TopicPartition("u", n): LogConfig() for n in range(100)})
    assert told == [len(MANY) + 100]


async def test_a_directory_that_fails_meanwhile_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path / "1", tmp_path / "2")
    manager = await broker.load()
    make_dirs = RealDisk.make_dirs

    def failing(disk: RealDisk, path: str) -> None:
        if path.startswith(str(tmp_path / "1")):
            raise OSError("disk")
        make_dirs(disk, path)

    monkeypatch.setattr(RealDisk, "make_dirs", failing)
    await manager.creation.create(MANY)
    assert broker.failed == [str(tmp_path / "1")]
    assert 0 < len(manager.logs) < len(MANY)  # the first ones of the bad directory are missing
    for tp in MANY:
        assert manager.dir_of(manager.get_or_create(tp, LogConfig())) == str(tmp_path / "2")


async def test_a_log_of_a_directory_that_went_offline_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await Broker(tmp_path).load()
    tp = TopicPartition("t", 0)
    run = RealDisk.run

    async def and_fail(disk: RealDisk, work):  # type: ignore[no-untyped-def]
        made = await run(disk, work)
        manager.fail_dir(str(tmp_path), OSError("disk"))
        return made

    monkeypatch.setattr(RealDisk, "run", and_fail)
    await manager.creation.create({tp: LogConfig()})
    assert not manager.logs
    with pytest.raises(OSError, match="no log directory is left for t-0"):
        manager.get_or_create(tp, LogConfig())
    await manager.creation.create({tp: LogConfig()})
    assert not manager.logs
