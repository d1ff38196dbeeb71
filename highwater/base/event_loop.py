"""The event loop's clock.  Monotonic time is trio's, because a simulation runs trio on its own."""

from __future__ import annotations

import trio


def monotonic_ms() -> int:
    """Milliseconds of the loop's monotonic clock, rounded down."""
    return int(trio.current_time() * 1000)
