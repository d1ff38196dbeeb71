"""Long work on a simulated disk, step by step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class SimSteps(Generic[T]):
    """`world.api.Steps`: each step runs at one moment, and takes the time of its bytes."""

    def __init__(
        self, run: Callable[[Callable[[], T | None]], Awaitable[T | None]], bytes_per_second: float
    ) -> None:
        self._run = run
        self._rate = bytes_per_second
        self._bytes = 0
        self._steps: Iterator[T] = iter(())

    def begin(self, steps: Iterator[T]) -> None:
        self._steps = steps

    def pace(self, n: int) -> None:
        self._bytes += n

    async def next(self) -> T | None:
        result = await self._run(lambda: next(self._steps, None))
        seconds, self._bytes = self._bytes / self._rate, 0
        await trio.sleep(seconds)
        return result
