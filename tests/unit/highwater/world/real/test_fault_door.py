"""Both ends of the door: what one side sets, a world of the other side meets, and counts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from highwater.world.real import RealWorld
from highwater.world.real.fault_door import FaultDoor


@pytest.fixture
def door(tmp_path: Path) -> FaultDoor:
    return FaultDoor(tmp_path / "door")


def test_a_clock_is_off_until_it_is_set_right(tmp_path: Path, door: FaultDoor) -> None:
    clock = RealWorld(door=str(tmp_path / "door")).clock
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    door.jump(-3_600_000)
    assert abs(clock.wall_ms() + 3_600_000 - time.time() * 1000) < 1000
    assert door.clock_read == 1
    door.close()
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    assert door.clock_read == 1


async def test_each_write_and_flush_takes_longer(tmp_path: Path, door: FaultDoor) -> None:
    disk = RealWorld(door=str(tmp_path / "door")).disk
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append([b"one"])
    assert door.slowed == 0
    door.slow_down(30_000)
    began = time.monotonic()
    file.append([b"two"])
    await file.flush()
    disk.replace(str(tmp_path / "checkpoint"), b"3")
    assert time.monotonic() - began >= 0.09
    assert door.slowed == 3
    file.close()
    assert (tmp_path / "file").read_bytes() == b"onetwo"


def test_a_door_stays_as_it_is_for_a_process_that_starts_again(
    tmp_path: Path, door: FaultDoor
) -> None:
    door.jump(60_000)
    assert FaultDoor(tmp_path / "door").clock_ms == 60_000
