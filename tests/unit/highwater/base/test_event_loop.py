"""Work on many things gives way to other tasks; milliseconds are those of trio's clock."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import trio
from trio.testing import MockClock

from highwater.base.event_loop import in_steps, in_turns, monotonic_ms


class Steps(trio.abc.Instrument):
    """Counts the turns of the task that made it."""

    def __init__(self) -> None:
        self.count = 0
        self._task = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self._task


@pytest.mark.parametrize(("at_once", "wanted"), [(1, 3), (2, 1), (3, 1), (4, 0)])
async def test_others_run_after_every_few_items(at_once: int, wanted: int) -> None:
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    found = [item async for item in in_turns("abc", at_once)]
    assert (found, steps.count) == (["a", "b", "c"], wanted)


async def test_others_run_at_each_pause() -> None:
    def work() -> Generator[None, None, str]:
        yield
        yield
        return "done"

    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    assert (await in_steps(work()), steps.count) == ("done", 2)


async def test_the_clock_is_trios(autojump_clock: MockClock) -> None:
    before = monotonic_ms()
    await trio.sleep(1.5)
    assert monotonic_ms() - before == 1500
