"""The cluster's events, in order: each fault, its end, each unexpected end of a member."""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT = 10_000
"""How many of the last events are kept; a gap in `n` shows a reader that it has missed some."""


def wall_clock() -> str:
    """The time now: ISO 8601, UTC, in milliseconds."""
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Events:
    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._last = 0
        self.listener: Callable[[dict[str, Any]], None] | None = None
        """Is called with each event as it happens."""

    def add(self, text: str) -> None:
        self._last += 1
        event = {"n": self._last, "t_ns": time.monotonic_ns(), "at": wall_clock(), "text": text}
        self._kept.append(event)
        if self.listener is not None:
            self.listener(event)

    def since(self, n: int) -> list[dict[str, Any]]:
        """The kept events after number `n`."""
        return [event for event in self._kept if event["n"] > n]
