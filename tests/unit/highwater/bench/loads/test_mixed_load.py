"""The paced load: what is due when, and a latency that counts from there."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.bench.loads import mixed

ROOM = 100
"""Of the producer's queue: less than what a stall holds up."""


class Slow:
    """A producer that acknowledges all that was sent when it is polled, and was once stalled."""

    def __init__(self, now: list[float]) -> None:
        self.now, self.waiting, self.polls = now, [], 0  # type: ignore[var-annotated]

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        if len(self.waiting) >= ROOM:
            raise BufferError
        self.waiting.append(on_delivery)

    def poll(self, seconds: float) -> None:
        self.polls += 1
        self.now[0] += 0.5 if self.polls == 3 else 0.01
        for callback in self.waiting:
            callback(None, None)
        self.waiting.clear()

    def flush(self, seconds: float) -> int:
        self.poll(0)
        return 0


def test_a_stall_is_seen_in_every_record_that_it_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    latencies, took = mixed._paced(Slow(now), "t", 1000.0, 1.0)
    assert took >= 1.0
    assert len(latencies) == 1000
    late = sorted(seconds for seconds in latencies if seconds > 0.05)
    assert 450 <= len(late) <= 550, "a stall of half a second, a record each ms"
    assert late[-1] == pytest.approx(0.51, abs=0.02)


def test_the_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mixed.due(10.0, 12.0, 250.0) == 500
    assert mixed.command("b:1", "t", 10.0, 2.0)[-4:] == ["b:1", "t", "10.0", "2.0"]
