"""Log directories: their owner, the finds of a start, and the effects of a failure."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from highwater.broker.log import checkpoints
from highwater.broker.log.log_manager import LogDirectoryError, LogManager
from highwater.kafka.config import Config
from highwater.kafka.types import TopicPartition
from highwater.world.real.disk import RealDisk
from tests.unit.broker.log.conftest import (
    START_MS,
    FakeClock,
    batch,
    bytes_of,
    content,
    largest_file,
    lead,
    sequence_of,
)

A, B = TopicPartition("a", 0), TopicPartition("b.c-d", 12)


class Broker:
    """The log side of one broker."""

    def __init__(self, *folders: Path, **config: object) -> None:
        self.folders = [str(f) for f in folders]
        self.config = replace(Config(), **config)  # type: ignore[arg-type]
        self.failed: list[str] = []
        self.clock = FakeClock()
        self.marks: dict[TopicPartition, int] = {}
        self.manager = LogManager(
            RealDisk(), self.clock, self.folders, self.config,
            on_dir_failure=lambda path, error: self.failed.append(path),
            high_watermark=lambda tp: self.marks.get(tp, 0),
        )  # fmt: skip

    async def load(self, cluster: str = "c1", broker_id: int = 1) -> LogManager:
        await self.manager.load(cluster, broker_id)
        return self.manager

    def kill(self) -> None:
        """Ends as by a kill of the system: files and locks go, nothing is written."""
        for log in self.manager.logs.values():
            log.close_files()
        for directory in self.manager._dirs.values():
            directory.release()


@pytest.fixture
def virtual_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> trio.testing.MockClock:
    """Sleeps pass at once.  No threads: the clock would jump ahead of them."""

    async def inline(work: Callable[..., object], *args: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", inline)
    return autojump_clock


@asynccontextmanager
async def running(manager: LogManager) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_a_clean_shutdown_is_believed_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    manager = await broker.load()
    for tp in (A, B):
        log = manager.get_or_create(tp, manager.default_config)
        lead(log, batch(3, producer=(1, 0, 0)), epoch=2)
    manager.checkpoint_high_watermarks({A: 3, B: 1})
    await manager.shutdown(77)
    sign = tmp_path / checkpoints.CLEAN_SHUTDOWN
    assert json.loads(sign.read_text()) == {"version": 0, "brokerEpoch": 77}

    broker = Broker(tmp_path)
    manager = await broker.load()
    assert not sign.exists()
    assert sorted(manager.logs) == [A, B]
    assert manager.high_watermarks == {A: 3, B: 1}
    log = manager.logs[B]
    assert (log.log_end_offset, log.recovery_point, log.epochs.entries) == (3, 3, [(2, 0)])
    assert sequence_of(log, 1) == [(2, 2)]
    broker.kill()


async def test_after_a_kill_logs_are_recovered(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    lead(log, batch(3))
    await log.flush()
    manager.checkpoint_recovery_points()
    await manager.settle()
    lead(log, batch(3))
    whole = log.size
    broker.kill()
    with (tmp_path / "a-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"torn")
    manager = await Broker(tmp_path).load()
    log = manager.logs[A]
    assert (log.log_end_offset, log.recovery_point, log.size) == (6, 3, whole)


async def test_one_process_a_directory(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    await first.load()
    with pytest.raises(LogDirectoryError, match=r"in use by another process.*another log.dirs"):
        await Broker(tmp_path).load()
    first.kill()
    await Broker(tmp_path).load()


async def test_one_broker_and_one_cluster_a_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    await broker.load("c1", 1)
    await broker.manager.shutdown()
    with pytest.raises(LogDirectoryError, match=r"belongs to broker.id 1, and this broker is 2"):
        await Broker(tmp_path).load("c1", 2)
    with pytest.raises(LogDirectoryError, match=r"belongs to cluster c1.*cluster c2"):
        await Broker(tmp_path).load("c2", 1)
    await Broker(tmp_path).load("c1", 1)


async def test_what_apache_kafka_wrote_into_meta_properties_stays(tmp_path: Path) -> None:
    path = tmp_path / checkpoints.META_PROPERTIES
    text = "#\n#Fri Nov 21 04:00:00 UTC 2026\nbroker.id=1\ndirectory.id=xyz\nversion=0\n"
    path.write_text(text + "cluster.id=c1\n")
    await Broker(tmp_path).load()
    assert path.read_text() == text + "cluster.id=c1\n"


async def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "1", tmp_path / "2")
    manager = await broker.load()
    for n in range(5):
        manager.get_or_create(TopicPartition("t", n), manager.default_config)
    counts = [len(list((tmp_path / d).glob("t-*"))) for d in ("1", "2")]
    assert counts == [3, 2]


async def test_a_failed_directory_goes_with_its_logs_and_the_other_stays(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "1", tmp_path / "2")
    manager = await broker.load()
    for n in range(4):
        manager.get_or_create(TopicPartition("t", n), manager.default_config)
    bad = manager.logs[TopicPartition("t", 0)]
    manager.fail_dir(manager.dir_of(bad), OSError("disk"))
    manager.fail_dir(manager.dir_of(bad), OSError("disk"))
    assert broker.failed == [str(tmp_path / "1")]
    assert [tp.partition for tp in manager.logs] == [1, 3]
    log = manager.get_or_create(TopicPartition("t", 9), manager.default_config)
    assert log.dir.startswith(str(tmp_path / "2"))
    await manager.shutdown()
    assert not (tmp_path / "1" / checkpoints.CLEAN_SHUTDOWN).exists()
    assert (tmp_path / "2" / checkpoints.CLEAN_SHUTDOWN).exists()


async def test_a_directory_that_cannot_be_used_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    broker = Broker(tmp_path / "file", tmp_path / "good")
    await broker.load()
    assert broker.manager.offline_dirs == {str(tmp_path / "file")}
    with pytest.raises(LogDirectoryError, match="none of the log directories can be used"):
        await Broker(tmp_path / "file").load()


async def test_a_checkpoint_that_cannot_be_written_fails_the_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    manager = await broker.load()
    manager.get_or_create(A, manager.default_config)
    with largest_file(0):
        manager.checkpoint_high_watermarks({A: 5})
        await manager.settle()
    assert broker.failed == [str(tmp_path)]
    assert manager.logs == {}


async def test_a_partition_in_two_directories(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name / "a-0").mkdir(parents=True)
    with pytest.raises(LogDirectoryError, match=r"partition a-0 is in .* remove one"):
        await Broker(tmp_path / "1", tmp_path / "2").load()


async def test_deletion(tmp_path: Path, virtual_time: trio.testing.MockClock) -> None:
    broker = Broker(tmp_path, log_segment_delete_delay_ms=60_000)
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    lead(log, batch(3))
    slice_, expected = log.read(0, 1000, 3), bytes_of(log)
    manager.checkpoint_high_watermarks({A: 3})
    await log.flush()
    manager.checkpoint_recovery_points()
    await manager.settle()
    manager.delete(A)
    assert manager.get(A) is None
    (gone,) = tmp_path.glob("a-0.*-delete")
    again = manager.get_or_create(A, manager.default_config)
    assert (again.log_end_offset, again.size) == (0, 0)
    for name in (checkpoints.HIGH_WATERMARKS, checkpoints.RECOVERY_POINTS):
        assert checkpoints.decode_offsets((tmp_path / name).read_bytes()) == {}
    async with running(manager):
        await trio.sleep(59)
        assert content(slice_) == expected
        assert gone.exists()
        await trio.sleep(2)
        assert not gone.exists()
    broker.kill()


@pytest.mark.parametrize(
    ("error", "offline"), [(errno.EIO, ["b"]), (errno.ENOENT, [])], ids=["a disk", "a late rename"]
)
async def test_what_cannot_be_deleted_takes_its_directory_offline(
    tmp_path: Path,
    virtual_time: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    offline: list[str],
) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b", log_segment_delete_delay_ms=1000)
    manager = await broker.load()
    logs = {manager.get_or_create(tp, manager.default_config).dir: tp for tp in (A, B)}
    (deleted,) = (tp for path, tp in logs.items() if path.startswith(str(tmp_path / "b/")))
    manager.delete(deleted)

    def fails(path: str) -> None:
        raise OSError(error, "of the test", path)

    monkeypatch.setattr(manager.disk, "remove_tree", fails)
    async with running(manager):
        await trio.sleep(2)
    assert [Path(path).name for path in broker.failed] == offline
    broker.kill()


async def test_a_deletion_that_was_interrupted_is_finished(
    tmp_path: Path, virtual_time: trio.testing.MockClock
) -> None:
    broker = Broker(tmp_path)
    manager = await broker.load()
    manager.get_or_create(A, manager.default_config)
    manager.delete(A)
    broker.kill()
    broker = Broker(tmp_path)
    manager = await broker.load()
    assert manager.logs == {}
    async with running(manager):
        await trio.sleep(1)
    assert not list(tmp_path.glob("a-0*"))


async def test_what_is_done_now_and_then(
    tmp_path: Path, virtual_time: trio.testing.MockClock
) -> None:
    broker = Broker(
        tmp_path, log_retention_ms=1000, log_segment_bytes=len(batch(1)),
        log_segment_delete_delay_ms=1000, log_retention_check_interval_ms=10_000,
        log_flush_offset_checkpoint_interval_ms=5_000,
    )  # fmt: skip
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    async with running(manager):
        for n in range(3):
            lead(log, batch(1, timestamp=START_MS + 500 * n, producer=(n, 0, 0)))
        await trio.sleep(6)
        assert log.recovery_point == 2  # rolled segments are flushed
        written = (tmp_path / checkpoints.RECOVERY_POINTS).read_bytes()
        assert checkpoints.decode_offsets(written) == {A: 2}
        broker.marks[A], broker.clock.now_ms = 3, START_MS + 1999
        await trio.sleep(20)
        assert (log.log_start_offset, len(log.segments)) == (2, 1)
        assert not list((tmp_path / "a-0").glob("*.deleted"))
        broker.clock.now_ms = START_MS + 86_400_000 + 600
        await trio.sleep(700)
        assert [e.producer_id for e in log.producers.entries] == [2]
    broker.kill()


async def test_a_checkpoint_never_says_more_than_a_truncated_log_has(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_segment_bytes=2 * len(batch(1)))
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    for _ in range(10):
        lead(log, batch(1))
    await log.flush()
    manager.checkpoint_recovery_points()
    await manager.settle()
    log.truncate_to(3)
    for _ in range(7):
        lead(log, batch(1), epoch=1)
    damaged = log.segments[-2]
    broker.kill()
    path = Path(damaged.file.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    manager = await Broker(tmp_path).load()
    assert manager.logs[A].recovery_point == 3
    assert manager.logs[A].log_end_offset == damaged.base_offset + 1


async def test_log_starts_are_kept(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    manager = await broker.load()
    log = manager.get_or_create(A, manager.default_config)
    lead(log, batch(10))
    log.advance_log_start(7)
    manager.checkpoint_log_starts()
    await manager.settle()
    broker.kill()
    manager = await Broker(tmp_path).load()
    assert manager.logs[A].log_start_offset == 7


@pytest.mark.parametrize("text", [b"", b"0\n1\n", b"junk", b"0\n1\na 0 x\n", b"\xff\xfe"])
async def test_a_damaged_checkpoint_is_not_the_end(tmp_path: Path, text: bytes) -> None:
    broker = Broker(tmp_path)
    manager = await broker.load()
    lead(manager.get_or_create(A, manager.default_config), batch(3))
    broker.kill()
    for name in (
        checkpoints.RECOVERY_POINTS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.LOG_STARTS,
        f"a-0/{checkpoints.LEADER_EPOCHS}",
    ):
        (tmp_path / name).write_bytes(text)
    manager = await Broker(tmp_path).load()
    log = manager.logs[A]
    assert (log.log_end_offset, log.recovery_point, log.epochs.entries) == (3, 0, [(0, 0)])


async def test_checkpoints_go_on_after_somebody_else_has_settled(
    tmp_path: Path, virtual_time: trio.testing.MockClock
) -> None:
    """A follower that brings its log in line settles, too.  The task that writes checkpoints then
    waited for a wake-up that no longer came, until the broker stopped."""
    broker = Broker(tmp_path)
    manager = await broker.load()
    manager.get_or_create(A, manager.default_config)
    file = tmp_path / checkpoints.HIGH_WATERMARKS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await trio.sleep(0.1)
        await manager.settle()
        manager.checkpoint_high_watermarks({A: 5})
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert checkpoints.decode_offsets(file.read_bytes()) == {A: 5}
