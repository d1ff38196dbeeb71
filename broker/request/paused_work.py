"""Work of thousands of partitions, written as a generator that pauses where others may go on."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

import trio

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """What they return; others get their turn wherever they pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
        await trio.lowlevel.checkpoint()


def at_once(steps: Generator[None, None, T]) -> T:
    """What they return, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
