"""The schedule of a run: drawn from its seed and its flags, and changed by variations if there are
any.

A variation is a number, which stands for one to three changes, or a fault that is added ("slow
links of leader@12.3+2").  It always changes a schedule in the same way, and variations are applied
one after the other.  So a seed with some variations is a test case like a seed alone (`highwater
sim --replay 17 --vary 31,40`).  Until the first fault that differs, the run is that of its parent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from highwater.simulation.faults import disk_faults
from highwater.simulation.faults.directory_faults import directory_faults
from highwater.simulation.faults.joints import KINDS as JOINTS
from highwater.simulation.faults.joints import OF_SHARES, joints, joints_of_groups
from highwater.simulation.faults.random_faults import (
    TARGETS,
    WEIGHTS,
    random_length,
    schedule,
    stalls,
)
from highwater.simulation.faults.staged_faults import Fault
from highwater.world.chance import Random, seeded

if TYPE_CHECKING:
    from highwater.simulation.options import Options

MOST = 100
"""The most faults of a schedule, however often it is varied."""
END = 0.9
"""The share of the run's time after which no fault begins."""

KINDS = frozenset((*WEIGHTS, *disk_faults.WEIGHTS))
"""The faults that can be added."""
_ADDED = re.compile(
    rf"(?P<kind>[a-z ]+) of (?P<target>{'|'.join(TARGETS)})@(?P<at>[\d.]+)\+(?P<seconds>[\d.]+)"
)

Stream = Callable[[str], Random]
"""Gives a random generator for each use."""


def plan(seed: int, options: Options, random: Random) -> list[Fault]:
    """The schedule of a seed; later `random` also serves the faults themselves."""
    streams: Stream = lambda name: random if name == "faults" else seeded(seed, name)  # noqa: E731
    planned = _drawn(options, streams)
    for variation in options.vary:
        planned = varied(planned, options, variation)
    if options.only is not None:
        planned = [planned[n] for n in options.only if n < len(planned)]
    return planned


def _drawn(options: Options, streams: Stream) -> list[Fault]:
    often, seconds = options.power_loss or options.flush, options.seconds
    planned = schedule(streams("faults"), seconds, often, options.disk_errors)
    if options.stalls:
        planned += stalls(streams("stalls"), seconds)
    if options.log_dirs:
        planned += directory_faults(streams("log dirs"), seconds)
    if options.joints:
        planned += joints(streams("joints"), seconds)
    if options.joints and options.consumer_groups:
        planned += joints_of_groups(streams("joints of consumers"), seconds)
    if options.joints and options.share_groups:
        planned += joints_of_groups(streams("joints of shares"), seconds, OF_SHARES)
    return sorted(planned, key=lambda fault: fault.at)


def as_variation(fault: Fault) -> str:
    """The variation that adds this fault."""
    return f"{fault.kind} of {fault.target}@{fault.at:g}+{fault.seconds:g}"


def check(variation: str) -> None:
    """Raises ValueError if this is no variation."""
    added = _ADDED.fullmatch(variation)
    if not variation.isdecimal() and (added is None or added["kind"] not in KINDS):
        raise ValueError(
            f"{variation!r} is no variation: name a number, or a fault, as in "
            "'slow links of leader@12.3+2'"
        )


def varied(planned: list[Fault], options: Options, variation: str) -> list[Fault]:
    """The schedule with a variation's changes; joints keep their times, because they must follow
    one another."""
    if (added := _ADDED.fullmatch(variation)) is not None:
        at, seconds = min(float(added["at"]), options.seconds * END), float(added["seconds"])
        fault = Fault(round(at, 3), added["kind"], added["target"], seconds)
        return sorted([*planned, fault], key=lambda fault: fault.at)[:MOST]
    work = _Variation(planned, options, int(variation))
    for _ in range(work.random.choice((1, 1, 2, 3))):
        work.random.choice(work.changes)()
    return sorted(work.faults, key=lambda fault: fault.at)[:MOST]


class _Variation:
    def __init__(self, planned: list[Fault], options: Options, number: int) -> None:
        self.faults = list(planned)
        self.random = seeded("vary", number)
        self._last = options.seconds * END
        self._other = [
            fault
            for fault in _drawn(options, lambda name: seeded("vary", number, name))
            if fault.kind not in JOINTS
        ]
        """Faults that another seed might have."""
        self.changes: tuple[Callable[[], None], ...] = (
            self._move, self._meet, self._last_longer, self._aim, self._exchange, self._add,
            self._double, self._drop, self._graft,
        )  # fmt: skip

    def _one(self) -> int | None:
        """The position of a fault that may change."""
        free = [n for n, fault in enumerate(self.faults) if fault.kind not in JOINTS]
        return self.random.choice(free) if free else None

    def _put(self, position: int | None, **fields: float | str) -> None:
        if position is not None:
            self.faults[position] = replace(self.faults[position], **fields)  # type: ignore[arg-type]

    def _time(self, at: float) -> float:
        return round(min(max(at, 0.0), self._last), 3)

    def _move(self) -> None:
        if (one := self._one()) is not None:
            self._put(one, at=self._time(self.faults[one].at + self.random.uniform(-3, 3)))

    def _meet(self) -> None:
        """Makes one fault begin a moment after another."""
        if (one := self._one()) is not None:
            other = self.random.choice(self.faults)
            self._put(one, at=self._time(other.at + self.random.choice((0.0, 0.05, 0.5))))

    def _last_longer(self) -> None:
        self._put(self._one(), seconds=random_length(self.random))

    def _aim(self) -> None:
        self._put(self._one(), target=self.random.choice(TARGETS))

    def _exchange(self) -> None:
        if (one := self._one()) is not None and self._other:
            other = self.random.choice(self._other)
            self.faults[one] = replace(other, at=self.faults[one].at)

    def _add(self) -> None:
        if self._other:
            self.faults.append(self.random.choice(self._other))

    def _double(self) -> None:
        if (one := self._one()) is not None:
            again = self.faults[one]
            self.faults.append(
                replace(again, at=self._time(again.at + self.random.uniform(0.05, 3)))
            )

    def _drop(self) -> None:
        if len(self.faults) > 1 and (one := self._one()) is not None:
            del self.faults[one]

    def _graft(self) -> None:
        """Continues the schedule with another seed's faults."""
        cut = self.random.uniform(0, self._last)
        kept = [f for f in self.faults if f.at < cut or f.kind in JOINTS]
        self.faults = (kept + [f for f in self._other if f.at >= cut]) or self.faults
