"""The wall clock, and a counter for measuring short spans."""

from __future__ import annotations

import time


class RealClock:
    """`world.api.Clock` of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def perf_ns(self) -> int:
        return time.perf_counter_ns()
