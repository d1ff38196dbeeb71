"""Waits for the next fsync of one kind of file, so that a fault can strike during it."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio


@dataclass(slots=True)
class NextSync:
    """Waits for the fsync of a file whose path has a given ending."""

    suffix: str
    begun: trio.Event = field(default_factory=trio.Event)
    lasts_s: float = 0.0
    under_way: bool = False
