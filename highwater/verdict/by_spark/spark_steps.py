"""Carries out tables, views and checks as steps: each begins as soon as its inputs are there.

A query of a small run keeps one core busy, and most of its time is planning; a query of a large one
ends with a task that is longer than the others.  So several steps are at work at a time, and no
kind of step waits for the last one of another kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One table, view or check."""

    name: str
    work: Callable[[], None]
    queries: str = ""
    """Its SQL; it waits for the steps whose names follow FROM or JOIN."""


class NeverReady(Exception):
    """Steps wait for each other."""


def carry_out(steps: Sequence[Step], at_a_time: int) -> Iterator[Step]:
    """Carries out all steps, and yields each one when it is done.

    Of those that can begin, the first in the given order begins first.  What a step raises is
    raised here, and no further step is begun.
    """
    names = {step.name for step in steps}
    waiting = [(step, _named(step.queries) & names - {step.name}) for step in steps]
    done: set[str] = set()
    running: dict[Future[None], Step] = {}
    with ThreadPoolExecutor(at_a_time) as pool:
        while waiting or running:
            ready = [one for one in waiting if one[1] <= done][: at_a_time - len(running)]
            for one in ready:
                waiting.remove(one)
                running[pool.submit(one[0].work)] = one[0]
            if not running:
                left = ", ".join(step.name for step, _ in waiting)
                raise NeverReady(f"these wait for each other: {left}")
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                step = running.pop(future)
                future.result()
                done.add(step.name)
                yield step


def _named(queries: str) -> set[str]:
    return set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", queries))
