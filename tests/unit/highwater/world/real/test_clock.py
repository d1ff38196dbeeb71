"""The time that a hypervisor took, by /proc/stat."""

from __future__ import annotations

from highwater.world.real.clock import StolenTime, _stolen_ticks

STAT = b"cpu  9 9 9 9 9 9 9 15 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 4 9 10\nintr 5\n"


def test_each_cpu_has_its_own() -> None:
    assert [_stolen_ticks(STAT, cpu) for cpu in (0, 1, 2)] == [8, 4, 0]


def test_of_this_machine() -> None:
    stolen = StolenTime()
    before = stolen.now()
    assert before.startswith(b"cpu ")
    assert f"cpu{stolen.cpu()} ".encode() in before
    assert 0 <= stolen.since(before) < 10**9
