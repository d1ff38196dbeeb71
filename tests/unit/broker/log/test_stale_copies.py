"""A partition in two directories, of which one was offline: the newer copy counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.broker.log.dirs.stale_copies import MARK
from highwater.broker.log.log_manager import LogDirectoryError, LogManager
from highwater.kafka.config import Config
from highwater.kafka.types import TopicPartition
from highwater.world.real import RealWorld
from tests.unit.broker.log.conftest import batch, lead, sequence_of

TP = TopicPartition("t", 0)


async def manager(*dirs: Path) -> LogManager:
    world = RealWorld(seed=1)
    config = Config(broker_id=1, log_dirs=tuple(map(str, dirs)))
    made = LogManager(world.disk, world.clock, config.log_dirs, config, lambda *_: None)
    await made.load("c", 1)
    return made


def append(logs: LogManager, count: int) -> None:
    log = logs.get_or_create(TP, logs.default_config)
    for n in range(count):
        now = logs.clock.wall_ms()
        data = batch(producer=(7, 0, n), timestamp=now)
        lead(log, data, now_ms=now)


async def made_again_while_offline(first: Path, second: Path) -> tuple[Path, Path]:
    """The folders of the older copy, of three records, and of the newer one, of one."""
    logs = await manager(first, second)
    append(logs, 3)
    old = Path(logs.logs[TP].dir)
    logs.fail_dir(str(old.parent), OSError(5, "Input/output error"))
    assert TP not in logs.logs
    append(logs, 1)
    new = Path(logs.logs[TP].dir)
    assert new != old
    assert (new / MARK).exists()
    await logs.shutdown()
    return old, new


@pytest.mark.parametrize("swapped", [False, True])
async def test_the_copy_made_while_the_other_was_offline_wins(
    tmp_path: Path, swapped: bool
) -> None:
    old, new = await made_again_while_offline(tmp_path / "a", tmp_path / "b")
    dirs = (new.parent, old.parent) if swapped else (old.parent, new.parent)
    logs = await manager(*dirs)
    log = logs.logs[TP]
    assert log.dir == str(new)
    assert len(sequence_of(log, 7)) == log.log_end_offset == 1
    assert not old.exists()
    assert [p for p in old.parent.iterdir() if p.name.endswith("-delete")]
    assert not (new / MARK).exists(), "the mark goes when every directory is there"
    await logs.shutdown()


async def test_two_copies_that_nobody_can_tell_apart_are_refused(tmp_path: Path) -> None:
    old, new = await made_again_while_offline(tmp_path / "a", tmp_path / "b")
    (new / MARK).unlink()
    with pytest.raises(LogDirectoryError, match="remove one of the two"):
        await manager(tmp_path / "a", tmp_path / "b")
    assert old.exists()
    assert new.exists()


async def test_a_log_made_while_all_is_well_has_no_mark(tmp_path: Path) -> None:
    logs = await manager(tmp_path / "a", tmp_path / "b")
    append(logs, 1)
    assert not (Path(logs.logs[TP].dir) / MARK).exists()
    await logs.shutdown()
