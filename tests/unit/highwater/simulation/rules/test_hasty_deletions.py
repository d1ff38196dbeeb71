"""Which early ends of a deleted file's handle are a fault of the broker."""

from __future__ import annotations

import trio

from highwater.simulation.rules.at_rest import hasty
from highwater.world.sim import Kernel, Simulation, run_simulation


def found(name: str, delay_s: float, *failed: str, restarted: bool = False) -> list[str]:
    """What is said of a file that is deleted, and closed after the delay."""

    async def main(kernel: Kernel) -> list[str]:
        simulation = Simulation(kernel)
        host = simulation.add_host("h")
        world = simulation.start(host)
        world.disk.make_dirs("/data")
        file = world.disk.open(f"/data/{name}", create=True)
        world.disk.rename(f"/data/{name}", f"/data/{name}.deleted")
        await trio.sleep(delay_s)
        file.close()
        if restarted:
            world.process.kill()
            world = simulation.start(host)
        return list(hasty(host.disk, world.process, failed, 1000))

    return run_simulation(0, main)


def test_a_segment_that_is_closed_at_once_is_told() -> None:
    assert found("0.log", 0.25) == [
        "closed /data/0.log.deleted 250 ms after it was given that name"
    ]
    assert found("0.log", 1) == []
    assert found("0.index", 0) == []  # it was read


def test_a_directory_that_fails_closes_its_files() -> None:
    """Seed 1011 --pace 0.1 --power-loss --compacted --retained --disk-errors at 92143da, a false
    alarm (L2): a rename of a cleaned segment failed, and the broker ended."""
    assert found("0.log", 0, "/data") == []
    assert found("0.log", 0, restarted=True) == []
