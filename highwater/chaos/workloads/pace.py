"""A producer's pace: a rate, which stands still while no rate is set."""

from __future__ import annotations

import time


class Pace:
    """Grants `rate` records a second; after a stall it does not catch up in a burst."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._next = time.monotonic()

    def wait(self) -> float:
        """Seconds until the next record is due, at most 50 ms."""
        if self.rate <= 0:
            return 0.05
        return min(max(self._next - time.monotonic(), 0.0), 0.05)

    def take(self) -> bool:
        """Whether a record is due now; counts it."""
        now = time.monotonic()
        if self.rate <= 0 or now < self._next:
            return False
        self._next = max(self._next + 1 / self.rate, now - 0.1)
        return True
