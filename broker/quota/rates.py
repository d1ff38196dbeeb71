"""The measures for quotas: a rate over sliding windows, and a bucket of tokens.  Pure.

The rate is Kafka's: quota.window.num samples of one window each.  It counts as if all windows but
the last were full, so that the first request after a pause does not look like a burst.
"""

from __future__ import annotations

from collections import deque


class SampledRate:
    """The amount a second over the last `samples` windows."""

    __slots__ = ("_last", "_samples", "_starts", "_sums", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._starts: deque[int] = deque()
        self._sums: deque[float] = deque()
        self._last: deque[int] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        starts = self._starts
        if not starts or now_ms - starts[-1] >= self._window_ms:
            self._forget(now_ms)
            starts.append(now_ms)
            self._sums.append(0.0)
            self._last.append(now_ms)
        self._sums[-1] += amount
        self._last[-1] = now_ms

    def rate(self, now_ms: int) -> float:
        self._forget(now_ms)
        return sum(self._sums) / (self.span_ms(now_ms) / 1000)

    def span_ms(self, now_ms: int) -> int:
        """The time that the rate covers: at least all windows but one."""
        self._forget(now_ms)
        passed = now_ms - self._starts[0] if self._starts else 0
        missing = self._samples - 1 - passed // self._window_ms
        return max(passed + max(missing, 0) * self._window_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long nothing may come, so that the rate falls to the bound; 0 if it is not above."""
        rate = self.rate(now_ms)
        if rate <= bound:
            return 0
        return round((rate - bound) / bound * self.span_ms(now_ms)) if bound > 0 else 1000

    def idle(self, now_ms: int) -> bool:
        self._forget(now_ms)
        return not self._starts

    def _forget(self, now_ms: int) -> None:
        age = self._samples * self._window_ms
        while self._last and now_ms - self._last[0] >= age:
            self._starts.popleft()
            self._sums.popleft()
            self._last.popleft()


class TokenBucket:
    """Tokens come at a rate and gather up to a burst; one `take` may make their number negative."""

    __slots__ = ("_at_ms", "_tokens", "_windows_s")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._windows_s = samples * window_ms / 1000
        self._tokens: float | None = None
        self._at_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        burst = rate * self._windows_s
        if self._tokens is None:
            self._tokens = burst
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - amount

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long until the debt is paid; 0 without a debt."""
        missing = -self.tokens(rate, now_ms)
        if missing <= 0:
            return 0
        return round(missing / rate * 1000) if rate > 0 else 1000
