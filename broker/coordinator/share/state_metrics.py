"""What the share coordinator measures of its writes, by Kafka's names (ShareCoordinatorMetrics)."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from highwater.base.event_loop import monotonic_ms
from highwater.base.metrics import Registry
from highwater.broker.quota.rates import SampledRate

_SAMPLES, _WINDOW_MS = 2, 30_000
"""Kafka's own, of metrics without a quota."""
_REMEMBERED = 1000
_NAME = "kafka_server_share_coordinator_metrics_"


class WriteMeter:
    def __init__(self) -> None:
        self.count = 0
        self.times: deque[float] = deque(maxlen=_REMEMBERED)
        """Milliseconds from a call to its answer, of the latest writes."""
        self._rate = SampledRate(_SAMPLES, _WINDOW_MS)

    def begun(self, now_ms: float) -> None:
        self.count += 1
        self._rate.record(1, int(now_ms))

    def per_second(self, now_ms: float) -> float:
        return self._rate.rate(int(now_ms))


def register_state_metrics(metrics: Registry, meter: WriteMeter) -> None:
    metrics.gauge(f"{_NAME}write_total", lambda: meter.count, "Writes of share-partitions' state.")
    metrics.gauge(
        f"{_NAME}write_rate",
        lambda: meter.per_second(monotonic_ms()),
        "Writes of share-partitions' state in a second, over the last minute.",
    )
    for name, of in (("avg", fmean), ("max", max)):
        metrics.gauge(
            f"{_NAME}write_latency_{name}",
            lambda of=of: of(meter.times) if meter.times else 0.0,  # type: ignore[misc]
            "Milliseconds until the latest writes were answered.",
        )
