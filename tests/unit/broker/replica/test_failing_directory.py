"""A log directory that fails at every step, on the simulated disk: at the n-th look at it, for
every n, while a broker starts, moves a replica to the other directory, deletes it, and stops.

Whatever the step, that directory alone goes offline, and the other one keeps its logs.  The broker
died in one (`sim --transactions --log-dirs --pace 0.3`, seed 110009).
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
import trio

from highwater.broker.replica.partition import Role
from highwater.kafka.errors import ApiError
from highwater.kafka.types import TopicPartition
from highwater.world.sim import Kernel, Simulation, run_simulation
from tests.unit.broker.replica.test_dir_moves import SELF, TP, Rig, running

ROOT = Path("/")
EIO = 5
STAYS = {"/a": TopicPartition("stays", 0), "/b": TopicPartition("stays", 1)}
"""Partitions that are not moved, by their directory."""


class Life(Protocol):
    async def __call__(self, rig: Rig, *, last: bool) -> None: ...


class Fuse:
    """Breaks a directory at the n-th operation that names a path in it."""

    def __init__(self, disk: Any, path: str, left: int) -> None:
        self._disk, self._path, self.left = disk, path, left
        self._check, disk.check = disk.check, self.check

    def check(self, process: Any, path: str, **options: Any) -> None:
        if path.startswith(self._path):
            self.left -= 1
            if self.left == 0:
                self._disk.broken[self._path] = EIO
        self._check(process, path, **options)


def make_those_that_stay(rig: Rig) -> None:
    for path, tp in STAYS.items():
        rig.logs.futures.prefer(tp, path)
        rig.logs.get_or_create(tp, rig.logs.default_config)


async def two_copies(rig: Rig, *, last: bool) -> None:
    """A replica that is made again while its directory is offline; then a start."""
    await rig.logs.load("c", SELF)
    if not last:
        make_those_that_stay(rig)
        log = rig.host().require_log()
        rig.send(3)
        rig.logs.fail_dir(rig.logs.dir_of(log), OSError(EIO, "Input/output error"))
        rig.logs.get_or_create(TP, rig.logs.default_config)
    await rig.logs.shutdown()


async def a_life(rig: Rig, *, last: bool) -> None:
    """A start, appends, a move there and back, a deletion, and an orderly stop."""
    await rig.logs.load("c", SELF)
    if not last:
        make_those_that_stay(rig)
    rig.host()
    async with running(rig):
        for _ in range(2):
            partition = rig.replicas.partition(TP)
            if partition.role is Role.OFFLINE:
                break
            end, moved = partition.require_log().log_end_offset, rig.replicas.moves.moved
            try:
                rig.send(3, first=end)
                here = partition.require_log().dir.rpartition("/")[0]
                rig.replicas.moves.alter(TP, next(d for d in rig.dirs if d != here))
            except ApiError:
                break  # a directory is offline
            with trio.move_on_after(5.0):
                while rig.replicas.moves.moved == moved and not rig.failed:
                    await trio.sleep(0.005)
    if last and TP in rig.logs.logs:
        with suppress(OSError):
            rig.logs.delete(TP)
        await rig.logs.deletions.settle()
    await rig.logs.shutdown()


def fails_at(life: Life, step: int, path: str) -> tuple[bool, list[str]]:
    """Whether there was such a step, and the directories that went offline."""
    failed: list[str] = []
    fuse: list[Fuse] = []

    async def main(kernel: Kernel) -> None:
        simulation = Simulation(kernel)
        host = simulation.add_host("broker-1")
        await life(Rig(ROOT, simulation.start(host)), last=False)
        fuse.append(Fuse(host.disk, path, step))
        rig = Rig(ROOT, simulation.start(host))
        await life(rig, last=True)
        failed.extend(rig.failed)
        for directory, tp in STAYS.items():
            assert (tp in rig.logs.logs) == (directory not in rig.failed), f"step {step}: {tp}"

    run_simulation(1, main)
    return fuse[0].left <= 0, failed


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["/a", "/b"])
@pytest.mark.parametrize(("life", "least"), [(a_life, 50), (two_copies, 15)])
def test_a_directory_that_fails_costs_itself_alone(life: Life, least: int, path: str) -> None:
    for step in count(1):
        there, failed = fails_at(life, step, path)
        if not there:
            break
        assert failed == [path], f"step {step}"
    assert step > least
