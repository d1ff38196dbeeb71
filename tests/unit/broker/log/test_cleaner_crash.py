"""A crash at every step of a cleaning, on the simulated disk: kill -9 or a power cut at the n-th
disk operation, for every n, and then a start.

At every step: the log's end stays, no record appears that was not there, no key loses its last
value, and the next cleaning ends as one without a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from highwater.broker.log.cleaner.cleaner import LogCleaner
from highwater.broker.log.log import Log
from highwater.broker.log.log_manager import LogManager
from highwater.kafka.config import Config
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import TRANSACTIONAL, Marker, Record, build_batch, build_marker
from highwater.world.sim import Kernel, Simulation, run_simulation
from highwater.world.sim.disk import SimFile
from highwater.world.sim.process import Process, ProcessCrashed
from highwater.world.sim.process_disk import ProcessDisk
from tests.unit.broker.log.cleaner.test_work import records_in
from tests.unit.broker.log.conftest import OWN, START_MS, headers_of, lead

TP = TopicPartition("t", 0)
FOLDER = "/data"
CONFIG = Config(
    broker_id=1, log_dirs=(FOLDER,), log_segment_bytes=500, log_index_interval_bytes=100,
    log_cleanup_policy="compact", log_cleaner_min_cleanable_ratio=0.0,
    log_cleaner_delete_retention_ms=0, log_segment_delete_delay_ms=0,
    transaction_partition_verification_enable=False,
)  # fmt: skip
Records = list[tuple[int, bytes | None, bytes | None]]


@dataclass
class Fuse:
    """Kills a process at its n-th disk operation."""

    process: Process
    left: int
    used: int = 0

    def burn(self) -> None:
        self.used += 1
        if self.used == self.left:
            self.process.kill()
            raise ProcessCrashed(self.process.name)


@dataclass
class Fused:
    """A disk, or a file of it, whose operations burn the fuse first."""

    inner: Any
    fuse: Fuse
    _changing: tuple[str, ...] = field(
        default=("append", "truncate", "flush", "rename", "remove", "replace", "sync_dir",
                 "replace_durably", "open", "close")
    )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name not in self._changing:
            return value

        def call(*args: Any, **options: Any) -> Any:
            self.fuse.burn()
            result = value(*args, **options)
            return Fused(result, self.fuse) if isinstance(result, SimFile) else result

        return call

    def apart(self, work: Callable[..., Any], job: object, **options: Any) -> Any:
        def fused_work(disk: object, job: object, pace: object) -> Any:
            return work(self, job, pace)

        return ProcessDisk.apart(self.inner, fused_work, job, **options)


class Machine:
    def __init__(self, kernel: Kernel) -> None:
        self.simulation = Simulation(kernel)
        self.host = self.simulation.add_host("h")

    async def life(
        self, body: Callable[[Log, LogCleaner, LogManager], Any], fuse: int = 0
    ) -> tuple[Any, int]:
        """Starts, loads, runs the body; gives its result and the number of disk operations."""
        world = self.simulation.start(self.host)
        burning = Fuse(world.process, fuse)
        manager = LogManager(world.disk, world.clock, [FOLDER], CONFIG, lambda p, e: None)
        await manager.load("c", 1)
        log = manager.get_or_create(TP, manager.default_config)
        log.update_high_watermark(log.log_end_offset)
        disk: Any = Fused(world.disk, burning)
        if fuse:
            log.disk = disk
        cleaner = LogCleaner(manager, disk, world.clock, CONFIG, all_in_sync=lambda _: True)
        result = None
        try:
            with trio.CancelScope() as scope:
                world.process.scope = scope
                result = await body(log, cleaner, manager)
        except ProcessCrashed:
            pass
        world.process.kill()
        return result, burning.used

    def cut_power(self) -> None:
        self.simulation.power_loss(self.host)
        self.simulation.power_on(self.host)


async def write(log: Log, cleaner: LogCleaner, manager: LogManager) -> Records:
    """Overwrites, tombstones, an aborted transaction, several segments, all of it flushed."""
    for n in range(24):
        items = [Record(b"k%d" % (n % 5), b"v%d" % n, START_MS), Record(b"u%d" % n, b"x", START_MS)]
        lead(log, build_batch(items), origin=OWN)
        if n % 6 == 5:
            lead(
                log,
                build_batch([Record(b"u%d" % (n - 1), None, START_MS)]),
                origin=OWN,
            )
        if n == 10:
            data = build_batch(
                [Record(b"k0", b"aborted", START_MS)], producer_id=1, producer_epoch=0,
                base_sequence=0, attributes=TRANSACTIONAL,
            )  # fmt: skip
            lead(log, data, origin=OWN)
            lead(log, build_marker(Marker(False, 0), 1, 0, START_MS), origin=OWN)
    log.roll()
    for n in range(3):  # they become one, and the last of them has one offset
        lead(log, build_batch([Record(b"k%d" % n, b"alone", START_MS)]), origin=OWN)
        log.roll()
    lead(log, build_batch([Record(b"last", b"x", START_MS)]), origin=OWN)
    log.update_high_watermark(log.log_end_offset)
    await log.flush()
    manager.checkpoint_recovery_points()
    await manager.settle()
    assert len(log.segments) > 4
    return [r for r in records_in(log) if r[2] != b"aborted"]


async def clean(log: Log, cleaner: LogCleaner, manager: LogManager) -> Records:
    assert await cleaner.clean_next()
    await manager.settle()
    return list(records_in(log))


async def look(log: Log, cleaner: LogCleaner, manager: LogManager) -> tuple[int, Records]:
    names = manager.disk.list(log.dir)
    assert not [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))], names
    check_indexes_of(log)
    return log.log_end_offset, [r for r in records_in(log) if r[2] != b"aborted"]


def check_indexes_of(log: Log) -> None:
    headers = list(headers_of(log))
    for segment in log.segments:
        for header in headers:
            if segment.base_offset <= header.base_offset <= segment.last_offset():
                assert segment.locate(header.last_offset) == header.position


def judge(found: Records, written: Records, point: str) -> None:
    assert set(found) <= set(written), point
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets)), f"{point}: a replaced segment is still there"
    last = {key: offset for offset, key, _ in written}
    for offset, key, value in written:
        if last[key] == offset and value is not None:
            assert (offset, key, value) in found, f"{point}: the last value of {key!r} is missing"
    known = {key: value for _, key, value in found}
    for offset, key, value in written:
        if last[key] == offset and value is None:
            assert known.get(key) is None, f"{point}: {key!r} came back"


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_every_step(power: bool) -> None:
    step, crashed = 0, True
    while crashed:
        step += 1

        async def main(kernel: Kernel, step: int = step) -> bool:
            machine = Machine(kernel)
            written, _ = await machine.life(write)
            result, _ = await machine.life(clean, fuse=step)
            if power:
                machine.cut_power()
            (end, found), _ = await machine.life(look)
            assert end == written[-1][0] + 1, f"step {step}"
            judge(found, written, f"step {step}")

            async def again(log: Log, cleaner: LogCleaner, manager: LogManager) -> Records:
                while await cleaner.clean_next():
                    pass
                return list(records_in(log))

            final, _ = await machine.life(again)
            keys = [key for _, key, value in final if value is not None]
            assert len(keys) == len(set(keys)), f"step {step}: cleaning again ends as ever"
            return result is None

        crashed = run_simulation(step, main)
    assert step > 30, "each operation of the cleaning was tried"
