"""The next fsync of one kind of file, for whoever wants to be there while it is under way."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio


@dataclass(slots=True)
class NextSync:
    """Waits for the fsync of a file whose path ends so."""

    suffix: str
    begun: trio.Event = field(default_factory=trio.Event)
    lasts_s: float = 0.0
    under_way: bool = False
