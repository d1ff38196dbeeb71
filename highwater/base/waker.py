"""The cheapest way to wake one sleeping task: no queue, no event object, no memory per wake-up.

A consumer that found its deque empty sleeps here, and a producer that put something there wakes it.
While the consumer is awake, waking costs one comparison: that is what makes two queue hops a
request affordable (a trio memory channel costs ten times as much).
"""

from __future__ import annotations

from typing import Any

from trio import lowlevel


class Waker:
    """Wakes one sleeper.  `wake` without a sleeper is not remembered: look for work first."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: lowlevel.Task | None = None

    async def sleep(self) -> None:
        """Sleeps until `wake`.  A checkpoint."""
        assert self._task is None, "a waker has one sleeper"
        self._task = lowlevel.current_task()
        await lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: Any) -> lowlevel.Abort:
        self._task = None
        return lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        task = self._task
        if task is not None:
            self._task = None
            lowlevel.reschedule(task)
