"""Moves between log directories: the copy is the same log, always, and after every crash."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from highwater.broker.log.log import Log
from highwater.broker.log.log_manager import LogManager
from highwater.broker.log.parts import Origin
from highwater.broker.replica import dir_moves
from highwater.broker.replica.partition import LeaderAndIsr, Partition
from highwater.broker.replica.replica_manager import ReplicaManager
from highwater.broker.replica.throttles import LOG_DIRS_RATE
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.world.api import World
from highwater.world.real import RealWorld
from tests.unit.broker.log.conftest import batch, bytes_of, largest_file, sequence_of

SELF = BrokerId(1)
TP = TopicPartition("t", 0)


class Rig:
    """One broker's replicas on two directories; a restart is another one on the same folders."""

    def __init__(self, root: Path, world: World | None = None) -> None:
        self.dirs = [str(root / "a"), str(root / "b")]
        self.failed: list[str] = []
        config = Config(broker_id=1, log_dirs=tuple(self.dirs), log_segment_bytes=2000)
        world = world or RealWorld(seed=1)
        self.logs = LogManager(world.disk, world.clock, self.dirs, config, self._failed)
        self.replicas = ReplicaManager(
            config, world, self.logs, SELF,
            is_alive=lambda _: True, completed=lambda *_: None, zk=lambda: None,
            is_known=lambda tp: tp.topic == "later",
        )  # fmt: skip

    def _failed(self, path: str, error: OSError) -> None:
        self.failed.append(path)
        self.replicas.dir_failed(path)

    def host(self, epoch: int = 0) -> Partition:
        partition = self.replicas.partitions.get(TP) or self.replicas._host(TP, is_new=epoch == 0)
        state = LeaderAndIsr(SELF, LeaderEpoch(epoch), ControllerEpoch(1), (1,), ZkVersion(0), (1,))
        partition.make_leader(state, 0)
        return partition

    def send(self, count: int, size: int = 100, first: int = 0) -> None:
        for n in range(count):
            now = self.logs.clock.wall_ms()
            data = batch(size=size, producer=(7, 0, first + n), timestamp=now)
            self.replicas.append(self.replicas.partition(TP), memoryview(data), -1, Origin.CLIENT)

    def kill(self) -> None:
        for log in (*self.logs.logs.values(), *self.logs.futures.logs.values()):
            log.close_files()
        for directory in self.logs._dirs.values():
            directory.release()

    def folders(self) -> list[list[str]]:
        return [
            sorted(p.name.partition(".")[0] for p in Path(d).iterdir() if p.is_dir())
            for d in self.dirs
        ]


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.replicas.moves.run)
        yield
        nursery.cancel_scope.cancel()


async def until(what: Callable[[], object]) -> None:
    with trio.fail_after(10):
        while not what():
            await trio.sleep(0.005)


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    await made.logs.load("c", SELF)
    made.host()
    return made


def copied(rig: Rig, count: int) -> tuple[Partition, Log]:
    """A partition with this many records, and a copy that has them all."""
    partition = rig.host()
    rig.send(count)
    log, moves = partition.require_log(), rig.replicas.moves
    moves.alter(TP, next(d for d in rig.dirs if d not in log.dir))
    future = rig.logs.futures.logs[TP]
    while moves._copy(partition, future):
        pass
    return partition, future


async def restarted(rig: Rig, tmp_path: Path) -> Rig:
    rig.kill()
    again = Rig(tmp_path)
    await again.logs.load("c", SELF)
    return again


async def test_a_log_that_is_being_cleaned_is_waited_for(rig: Rig) -> None:
    rig.host()
    rig.send(3)
    moves, log = rig.replicas.moves, rig.replicas.partition(TP).require_log()
    moves.alter(TP, next(d for d in rig.dirs if d not in log.dir))
    rig.logs.cleaning[TP] = None
    progress = [await moves._advance(TP) for _ in range(3)]
    assert not any(progress)
    assert rig.logs.futures.logs[TP].log_end_offset == 0, "a copy could miss a tombstone"
    del rig.logs.cleaning[TP]
    progress = [await moves._advance(TP) for _ in range(2)]
    assert all(progress)
    assert moves.moved == 1


async def test_the_moved_log_is_the_same(rig: Rig) -> None:
    partition = rig.host()
    rig.send(60)
    rig.host(epoch=2)
    rig.host(epoch=5)  # a term without a record
    before = partition.require_log()
    data, epochs = bytes_of(before), before.epochs.entries
    source, target = before.dir.rpartition("/")[0], next(d for d in rig.dirs if d not in before.dir)
    assert len(before.segments) > 3
    async with running(rig):
        rig.replicas.moves.alter(TP, target)
        await until(lambda: rig.replicas.moves.moved)
        after = partition.require_log()
        await until(lambda: after.recovery_point == 60)
    assert after is rig.logs.get(TP)
    assert (before.deleted, after.dir) == (True, f"{target}/{TP}")
    assert (bytes_of(after), after.epochs.entries) == (data, epochs)
    assert (after.log_end_offset, partition.high_watermark, after.high_watermark) == (60, 60, 60)
    assert sequence_of(after, 7)[-1] == (59, 59)
    assert not (Path(source) / str(TP)).exists()
    assert rig.logs.futures.logs == {}
    rig.send(5, first=60)
    assert partition.high_watermark == 65


async def test_what_the_copy_had_not_flushed_is_flushed_in_its_new_place(rig: Rig) -> None:
    partition, future = copied(rig, 40)
    moves = rig.replicas.moves
    await future.flush()
    rig.send(1, first=40)  # it comes after the last flush, and adds an entry to the time index
    while moves._copy(partition, future):
        pass
    moved = rig.logs.futures.replace_current(TP, 41)
    unsynced = [segment.base_offset for segment in moved.segments if segment.unsynced_indexes]
    assert unsynced == [s.base_offset for s in future.segments if s.unsynced_indexes]
    assert 0 < len(unsynced) < len(moved.segments), "the others were flushed"
    await moved.flush()
    assert not any(segment.unsynced_indexes for segment in moved.segments)


async def test_a_moved_log_recognizes_retries_of_the_last_five_batches(rig: Rig) -> None:
    partition = rig.host()
    rig.send(10)
    target = next(d for d in rig.dirs if d not in partition.require_log().dir)
    async with running(rig):
        rig.replicas.moves.alter(TP, target)
        await until(lambda: rig.replicas.moves.moved)
    rig.send(5, first=5)
    assert partition.require_log().log_end_offset == 10, "five retries, and nothing new"


async def test_a_source_that_fails_during_the_exchange_costs_the_source_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = rig.host()
    rig.send(10)
    source = partition.require_log().dir.rpartition("/")[0]
    target = next(d for d in rig.dirs if d != source)
    rig.logs.checkpoint_high_watermarks({TP: 10})
    await rig.logs.settle()

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(rig.logs._dirs[source], "write", fails)
    async with running(rig):
        rig.replicas.moves.alter(TP, target)
        await until(lambda: rig.replicas.moves.moved)
        await until(lambda: rig.failed)
    assert rig.failed == [source]
    assert rig.logs.logs[TP] is partition.log
    assert partition.require_log().dir == f"{target}/{TP}"
    rig.send(1, first=10)
    assert partition.high_watermark == 11


async def test_a_flush_whose_log_is_deleted_meanwhile_is_no_failure_of_the_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = rig.host().require_log()
    rig.send(3)
    flush = log.segments[-1].flush

    async def deleted_first() -> None:
        rig.logs.delete(TP)
        await flush()

    monkeypatch.setattr(type(log.segments[-1]), "flush", lambda _: deleted_first())
    await log.flush()
    assert not Path(log.dir).exists()
    assert rig.failed == []


@pytest.mark.thorough
async def test_what_is_appended_meanwhile_is_not_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dir_moves, "PIECE_BYTES", 500)
    partition = rig.host()
    rig.send(50)
    target = next(d for d in rig.dirs if d not in partition.require_log().dir)
    sent = 50
    async with running(rig):
        rig.replicas.moves.alter(TP, target)
        while not rig.replicas.moves.moved:
            if sent < 500:
                rig.send(1, first=sent)
                sent += 1
            await trio.sleep(0)
    rig.send(1, first=sent)
    log = partition.require_log()
    assert log.dir.startswith(target)
    assert [o for _, o in sequence_of(log, 7)][-1] == sent == log.log_end_offset - 1
    assert sent > 50


async def test_a_cut_of_the_log_cuts_the_copy(rig: Rig) -> None:
    partition, future = copied(rig, 40)
    log, moves = partition.require_log(), rig.replicas.moves
    assert future.log_end_offset == 40
    log.truncate_to(10)
    assert future.log_end_offset == 10
    rig.host(epoch=1)
    rig.send(45, size=90, first=10)
    async with running(rig):
        await until(lambda: moves.moved)
    assert bytes_of(partition.require_log()) == bytes_of(log)
    assert partition.require_log().epochs.entries == [(0, 0), (1, 10)]


async def test_a_restart_goes_on_and_brings_the_copy_in_line(rig: Rig, tmp_path: Path) -> None:
    partition = rig.host()
    rig.send(40)
    log, moves = partition.require_log(), rig.replicas.moves
    target = next(d for d in rig.dirs if d not in log.dir)
    moves.alter(TP, target)
    future = rig.logs.futures.logs[TP]
    while moves._copy(partition, future):
        pass
    # as after a power loss that took the log's end, and not the copy's
    del rig.logs.futures.logs[TP]
    log.truncate_to(25)
    future.close_files()
    again = await restarted(rig, tmp_path)
    partition = again.host(epoch=3)
    assert again.logs.futures.logs[TP].log_end_offset == 40
    again.send(30, size=90, first=25)
    data = bytes_of(partition.require_log())
    async with running(again):
        await until(lambda: again.replicas.moves.moved)
    log = partition.require_log()
    assert log.dir.startswith(target)
    assert bytes_of(log) == data
    assert log.log_end_offset == 55


async def test_the_copy_of_a_cleaned_log_begins_anew_after_a_restart(
    rig: Rig, tmp_path: Path
) -> None:
    """Seed 1879 of five flags at fcf1e091, R8: while the copy's directory was offline, the cleaner
    removed records that the copy had, and tombstones that it had not."""
    partition = rig.host()
    rig.send(40)
    log, moves = partition.require_log(), rig.replicas.moves
    moves.alter(TP, next(d for d in rig.dirs if d not in log.dir))
    while moves._copy(partition, rig.logs.futures.logs[TP]):
        pass
    rig.logs.note_cleaned(log, 10)
    again = await restarted(rig, tmp_path)
    partition = again.host(epoch=3)
    assert again.logs.futures.logs[TP].log_end_offset == 0
    async with running(again):
        await until(lambda: again.replicas.moves.moved)
    assert partition.require_log().log_end_offset == 40


async def test_a_crash_between_the_renames_is_completed(rig: Rig, tmp_path: Path) -> None:
    partition = rig.host()
    rig.send(40)
    log, moves = partition.require_log(), rig.replicas.moves
    log.advance_log_start(7)
    data = bytes_of(log)
    target = next(d for d in rig.dirs if d not in log.dir)
    moves.alter(TP, target)
    future = rig.logs.futures.logs[TP]
    while moves._copy(partition, future):
        pass
    disk, renames = rig.logs.disk, []
    rename = disk.rename

    class Crash(BaseException):
        pass

    def crash(old: str, new: str) -> None:
        renames.append(new)
        if len(renames) == 2:
            raise Crash
        rename(old, new)

    disk.rename = crash  # type: ignore[method-assign]
    with pytest.raises(Crash):
        rig.logs.futures.replace_current(TP, 40)
    again = await restarted(rig, tmp_path)
    moved = again.logs.logs[TP]
    assert moved.dir == f"{target}/{TP}"
    assert moved.log_start_offset == 7
    assert bytes_of(moved) == data[7 * len(data) // 40 :]
    assert again.logs.high_watermarks[TP] == 40
    assert again.host(epoch=1).high_watermark == 40


async def test_the_start_of_a_log_stays_where_it_was_over_a_restart(
    rig: Rig, tmp_path: Path
) -> None:
    partition = rig.host()
    rig.send(40)
    partition.require_log().advance_log_start(7)
    target = next(d for d in rig.dirs if d not in partition.require_log().dir)
    async with running(rig):
        rig.replicas.moves.alter(TP, target)
        await until(lambda: rig.replicas.moves.moved)
    again = await restarted(rig, tmp_path)
    log = again.logs.logs[TP]
    assert (log.log_start_offset, log.log_end_offset) == (7, 40)
    assert again.logs.high_watermarks[TP] == 40


async def test_a_full_disk_at_the_target_costs_the_target_alone(rig: Rig) -> None:
    partition = rig.host()
    rig.send(60, size=1000)
    log = partition.require_log()
    target = next(d for d in rig.dirs if d not in log.dir)
    async with running(rig):
        with largest_file(1000):
            rig.replicas.moves.alter(TP, target)
            await until(lambda: rig.failed)
    assert rig.failed == [target]
    assert partition.require_log() is log
    assert rig.logs.futures.logs == {}
    rig.send(1, first=60)
    with pytest.raises(ApiError, match="offline"):
        rig.replicas.moves.alter(TP, target)


async def test_another_wish_ends_the_move(rig: Rig) -> None:
    log, moves = rig.host().require_log(), rig.replicas.moves
    here = log.dir.rpartition("/")[0]
    target = next(d for d in rig.dirs if d != here)
    moves.alter(TP, target)
    future = rig.logs.futures.logs[TP]
    moves.alter(TP, target)
    assert rig.logs.futures.logs[TP] is future, "the same again"
    moves.alter(TP, here)
    assert rig.logs.futures.logs == {}
    assert future.deleted
    moves.alter(TP, target)
    rig.logs.delete(TP)
    assert rig.logs.futures.logs == {}
    assert [f for folder in Path(target).iterdir() for f in [folder.name] if "future" in f] == []


async def test_a_partition_that_is_to_come_is_made_where_it_was_wished(rig: Rig) -> None:
    for number, path in ((1, rig.dirs[1]), (2, rig.dirs[1]), (3, rig.dirs[0]), (4, rig.dirs[0])):
        tp = TopicPartition("later", number)
        with pytest.raises(ApiError, match="REPLICA_NOT_AVAILABLE"):
            rig.replicas.moves.alter(tp, path)
        assert rig.replicas._host(tp, is_new=True).require_log().dir == f"{path}/{tp}"


async def test_moves_have_a_rate(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dir_moves, "PIECE_BYTES", 1000)
    partition = rig.host()
    rig.send(100)
    rig.replicas.throttles.bound({LOG_DIRS_RATE: 1})
    moves = rig.replicas.moves
    moves.alter(TP, next(d for d in rig.dirs if d not in partition.require_log().dir))
    future = rig.logs.futures.logs[TP]
    assert await moves._advance(TP)
    copied = future.log_end_offset
    assert 0 < copied < 100
    assert not await moves._advance(TP)
    assert future.log_end_offset == copied
    rig.replicas.throttles.bound({})
    async with running(rig):
        await until(lambda: moves.moved)
