"""How often groups of a kind took a new group epoch: the total, and the rate of late."""

from __future__ import annotations

from highwater.broker.quota.rates import SampledRate

_SAMPLES, _WINDOW_MS = 2, 30_000
"""Kafka's own, of metrics without a quota."""


class RebalanceMeter:
    def __init__(self) -> None:
        self.count = 0
        self._rate = SampledRate(_SAMPLES, _WINDOW_MS)

    def record(self, now_ms: float) -> None:
        self.count += 1
        self._rate.record(1, int(now_ms))

    def per_second(self, now_ms: float) -> float:
        return self._rate.rate(int(now_ms))
