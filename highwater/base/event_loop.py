"""The event loop's clock, and giving way to others on it.

Monotonic time is trio's, because a simulation runs trio on a clock of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


def monotonic_ms() -> int:
    """Milliseconds of the loop's monotonic clock, rounded down."""
    return int(trio.current_time() * 1000)


async def in_steps(steps: Generator[object, None, T]) -> T:
    """The result of work that is written as a generator; other tasks run at each of its pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


def in_turns(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """`async for` over these; other tasks run after every `at_once` of them."""
    return _Turns(items, at_once)


class _Turns(AsyncIterator[T], Generic[T]):
    """No async generator: one that is left early would have to be closed."""

    def __init__(self, items: Iterable[T], at_once: int) -> None:
        self._items = iter(items)
        self._at_once = at_once
        self._given = 0

    async def __anext__(self) -> T:
        if self._given == self._at_once:
            self._given = 0
            await trio.lowlevel.checkpoint()
        self._given += 1
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None
