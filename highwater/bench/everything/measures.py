"""The rows of `highwater bench all`: lines of the table, and the measure behind them.

A measure gives samples of each of its lines for both sides; no line of the table is ever left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from highwater.bench.everything.turns import Once, Turns
from highwater.bench.figures.rows import Line, Row, Samples

Run = Callable[[Turns], Awaitable[Samples]]
"""A measure that starts what it needs."""


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    lines: tuple[Line, ...]
    minutes: float
    """Roughly how long it takes on two quiet cores."""
    load: Once | None = None
    """The load that the shared clusters take in turn; None if there is a `run`."""
    run: Run | None = None
    partitions: int = 3
    """The number of partitions of the load's topic."""
    full: bool = False
    """Whether it is measured only with --full."""

    async def samples(self, turns: Turns) -> Samples:
        if self.load is None:
            assert self.run is not None, self.name
            return await self.run(turns)
        return await turns.in_turn(self.lines, self.load, self.partitions)


@dataclass(slots=True)
class Result:
    """A measure's samples, or why there are none, and how busy the machine was."""

    name: str
    date: str = ""
    commit: str = ""
    build: str = ""
    """Whether modules were pure or compiled, and which checks a produced batch went through."""
    seconds: float = 0.0
    load: Sequence[float] = (0.0, 0.0)
    """The load average of a minute, before and after."""
    busy: float = 0.0
    """The share of the CPUs that others used just before, from 0 to 1."""
    samples: Samples = field(default_factory=Samples)
    reason: str = ""

    @property
    def measured(self) -> bool:
        return bool(self.samples)

    @property
    def quiet(self) -> bool:
        return self.busy < 0.1

    def as_json(self) -> dict[str, Any]:
        found = asdict(self) | {"quiet": self.quiet}
        del found["name"]
        return found

    @staticmethod
    def of_json(name: str, found: dict[str, Any], commit: str = "") -> Result:
        """The result in this JSON; `commit`: used if the JSON has none."""
        told = {"commit": commit, "build": "pure, headers"} | found
        told.pop("quiet", None)  # it is derived from `busy`
        return Result(name, **told | {"samples": Samples(found["samples"])})


def verdict(line: Line, row: Row | None) -> str:
    """ "reached", "short", or "-" where there is no ratio."""
    if row is None or row.ratio is None:
        return "-"
    return "reached" if round(row.ratio, 2) >= round(line.goal, 2) else "short"
