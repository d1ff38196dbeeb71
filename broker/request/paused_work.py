"""Work on thousands of partitions, written as a generator that pauses so that others may go on."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

import trio

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Runs the steps and returns their result; other tasks run at each pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
        await trio.lowlevel.checkpoint()


def at_once(steps: Generator[None, None, T]) -> T:
    """Runs the steps without a pause and returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
