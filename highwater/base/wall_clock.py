"""The wall clock of this machine, for the harness; a broker's clock is its World's."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
