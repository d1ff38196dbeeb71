"""How a test waits for another process, until a condition holds or it fails; and how it does not
wait for work that pauses."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.02


def eventually(
    condition: Callable[[], object],
    what: str,
    state: Callable[[], object] = lambda: "",
    within_s: float = 60,
) -> None:
    """Asks again and again; when the time is over, fails with the state at that moment."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}\n{state()}")
        time.sleep(POLL_S)


def at_once(steps: Generator[None, None, T]) -> T:
    """The result of work that is written as a generator, without its pauses."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
