"""One entry of a schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class ScheduleError(Exception):
    """A fault file that cannot be understood; one clear line."""


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    target: str = ""
    at: float | None = None
    after: float = 0.0
    lasts: float | None = None
    """`for` in a file: seconds after which the fault ends."""
    label: str = ""
    """`as` in a file."""
    params: dict[str, Any] = field(default_factory=dict)
    optional: bool = False
    """Whether it is left out where the run's time is over."""
    place: str = field(default="", compare=False)
    """Its place: the file and the entry."""
