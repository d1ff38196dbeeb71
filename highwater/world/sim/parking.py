"""Tasks of the simulation that wait to be woken: a parking lot reduced to the needed parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio import lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiters:
    """Any number of waiting tasks; `wake_all` wakes them in the order of their arrival."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: list[lowlevel.Task] = []

    async def sleep(self) -> None:
        """Sleeps until `wake_all`.  A checkpoint."""
        task = lowlevel.current_task()
        tasks = self._tasks
        tasks.append(task)

        def abort(_: Callable[[], None]) -> lowlevel.Abort:
            tasks.remove(task)
            return lowlevel.Abort.SUCCEEDED

        await lowlevel.wait_task_rescheduled(abort)

    def wake_all(self) -> None:
        tasks = self._tasks
        if tasks:
            for task in tasks:
                lowlevel.reschedule(task)
            tasks.clear()
