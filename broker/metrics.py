"""What a broker measures of every request, and the registry of everything else it measures.

Each API has its own times, counts by version and counts of errors by name, as Kafka's
RequestMetrics; Fetch has them three times: together, and apart for consumers and followers.
Recording one request costs about a microsecond and a half.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from highwater.common.metrics import (
    Family,
    Registry,
    Sample,
    TimeHistogram,
    histogram_samples,
    labels,
)

if TYPE_CHECKING:
    from broker.network.request import Request

_PREFIX = "kafka_network_requestmetrics_"
_TIMES = (
    ("requestqueuetimems", "queue", "in the request channel"),
    ("localtimems", "local", "in the handler"),
    ("remotetimems", "remote", "waiting for something to happen elsewhere, in the purgatory"),
    ("throttletimems", "throttle", "the client was muted for a quota"),
    ("responsequeuetimems", "response_queue", "in the response queue"),
    ("responsesendtimems", "send", "being sent"),
    ("totaltimems", "total", "from the last byte in to the last byte out"),
)


class ApiMetrics:
    """One API's (or, of Fetch, one kind of client's) requests."""

    __slots__ = (
        "by_version",
        "errors",
        "local",
        "queue",
        "remote",
        "request_bytes",
        "response_bytes",
        "response_queue",
        "send",
        "throttle",
        "total",
    )

    def __init__(self) -> None:
        self.by_version: dict[int, int] = {}
        self.errors: dict[str, int] = {}
        self.request_bytes = 0
        self.response_bytes = 0
        self.queue = TimeHistogram()
        self.local = TimeHistogram()
        self.remote = TimeHistogram()
        self.throttle = TimeHistogram()
        self.response_queue = TimeHistogram()
        self.send = TimeHistogram()
        self.total = TimeHistogram()

    @property
    def count(self) -> int:
        return sum(self.by_version.values())

    def record(self, request: Request, sent: int) -> None:
        """Everything about a request whose answer has left at `sent`."""
        version = request.api_version
        self.by_version[version] = self.by_version.get(version, 0) + 1
        self.request_bytes += request.size
        self.response_bytes += request.response_bytes
        received, taken, handled = request.received, request.taken, request.handled
        ready, taken_back = request.ready, request.taken_back
        self.queue.record(taken - received)
        self.local.record(handled - taken)
        self.remote.record(ready - handled)
        self.response_queue.record(taken_back - ready)
        self.send.record(sent - taken_back)
        self.total.record(sent - received)
        if request.throttle_ms:
            self.throttle.record(request.throttle_ms * 1_000_000)
        for name in request.error_names or ("NONE",):
            self.errors[name] = self.errors.get(name, 0) + 1


class Metrics(Registry):
    """A broker's registry."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, ApiMetrics] = {}
        self.collector(self._request_families)
        self._now_ns = 0

    def api(self, name: str) -> ApiMetrics:
        """The metrics of an API ("Produce"), or of a kind of Fetch ("FetchConsumer")."""
        found = self.requests.get(name)
        if found is None:
            found = self.requests[name] = ApiMetrics()
        return found

    def families(self, now_ns: int) -> Iterable[Family]:
        self._now_ns = now_ns
        return super().families(now_ns)

    def _request_families(self) -> Iterable[Family]:
        requests, errors = [], []
        for name, api in self.requests.items():
            for version, n in sorted(api.by_version.items()):
                requests.append(Sample("", labels(request=name, version=version), n))
            for error, n in sorted(api.errors.items()):
                errors.append(Sample("", labels(request=name, error=error), n))
        yield Family(_PREFIX + "requestspersec", "counter", "Requests answered", requests)
        yield Family(_PREFIX + "errorspersec", "counter", "Error codes in answers", errors)
        for suffix, attribute, help_ in _TIMES:
            samples: list[Sample] = []
            for name, api in self.requests.items():
                histogram: TimeHistogram = getattr(api, attribute)
                samples.extend(histogram_samples(histogram, labels(request=name), self._now_ns))
            yield Family(_PREFIX + suffix, "summary", f"Time {help_}", samples)
