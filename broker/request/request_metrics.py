"""A broker's measurements of every request, and the registry of all its other metrics.

Each API has its own times, counts by version and counts of errors by name, like Kafka's
RequestMetrics.  Fetch has them three times: for consumers, for followers, and for both (added up at
the scrape).  Throttle times include only requests whose client was throttled.  The stamps of
requests are kept, and counted many at a time: single calls would cost more than the counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import sub
from typing import Protocol

from highwater.base.loop_steps import LoopSteps
from highwater.base.metrics import (
    SIZE_SHIFT,
    Family,
    Registry,
    Sample,
    SizeHistogram,
    TimeHistogram,
    histogram_samples,
    labels,
)
from highwater.broker.request.response import Extra

_PREFIX = "kafka_network_requestmetrics_"
_TIMES = (
    ("requestqueuetimems", "queue", "in the request channel"),
    ("localtimems", "local", "in the handler"),
    ("remotetimems", "remote", "waiting for something to happen elsewhere, in the purgatory"),
    ("throttletimems", "throttle", "the client was muted for a quota"),
    ("responsequeuetimems", "response_queue", "in the response queue"),
    ("responsesendtimems", "send", "being sent"),
    ("totaltimems", "total", "from the last byte in to the last byte out"),
    ("messageconversionstimems", "conversions", "converting records between formats"),
)


_SIZES = (
    ("requestbytes", "request_bytes", "Size of the requests in bytes"),
    ("temporarymemorybytes", "temporary_memory", "Memory used to convert records, in bytes"),
)
_OF_RECORDS = ("conversions", "temporary_memory")
_CONVERTING = ("Produce", "Fetch")
_FETCHES = ("FetchConsumer", "FetchFollower")
_NONE = ("NONE",)
_AT_ONCE = 64
"""The number of requests that are counted together."""


class MeasuredRequest(Protocol):
    """A request whose answer has left; the stamps are nanoseconds."""

    api_version: int
    size: int
    received: int
    taken: int
    handled: int
    ready: int
    taken_back: int
    throttle_ms: int
    extra: Extra | None
    error_names: tuple[str, ...]


class ApiMetrics:
    """The requests of one API (or, for Fetch, of one kind of client)."""

    __slots__ = (
        "_sent",
        "by_version",
        "conversions",
        "errors",
        "local",
        "queue",
        "remote",
        "request_bytes",
        "response_queue",
        "send",
        "temporary_memory",
        "throttle",
        "total",
    )

    def __init__(self) -> None:
        self._sent: list[tuple[int, int, int, int, int, int, int, int]] = []
        """Version, size and stamps of requests that are not counted yet."""
        self.by_version: dict[int, int] = {}
        self.errors: dict[str, int] = {}
        self.request_bytes = SizeHistogram()
        self.temporary_memory = SizeHistogram()
        self.conversions = TimeHistogram()
        self.queue = TimeHistogram()
        self.local = TimeHistogram()
        self.remote = TimeHistogram()
        self.throttle = TimeHistogram()
        self.response_queue = TimeHistogram()
        self.send = TimeHistogram()
        self.total = TimeHistogram()

    @property
    def count(self) -> int:
        return sum(self.by_version.values()) + len(self._sent)

    def record(self, request: MeasuredRequest, sent: int) -> None:
        """Records everything about a request whose answer has left at `sent`."""
        self._sent.append(
            (
                request.api_version, request.size, request.received, request.taken, request.handled,
                request.ready, request.taken_back, sent,
            )
        )  # fmt: skip
        if len(self._sent) >= _AT_ONCE:
            self.fold()
        if request.throttle_ms:
            self.throttle.record(request.throttle_ms * 1_000_000)
        if request.extra is not None:
            self.temporary_memory.record(request.extra.temporary_memory_bytes << SIZE_SHIFT)
            self.conversions.record(request.extra.conversions_ns)
        for name in request.error_names or _NONE:
            self.errors[name] = self.errors.get(name, 0) + 1

    def fold(self) -> None:
        """Counts what was recorded; called before the counts are read."""
        if not self._sent:
            return
        versions, sizes, received, taken, handled, ready, taken_back, sent = zip(
            *self._sent, strict=True
        )
        self._sent.clear()
        for version in versions:
            self.by_version[version] = self.by_version.get(version, 0) + 1
        self.request_bytes.record_all(size << SIZE_SHIFT for size in sizes)
        self.queue.record_all(map(sub, taken, received))
        self.local.record_all(map(sub, handled, taken))
        self.remote.record_all(map(sub, ready, handled))
        self.response_queue.record_all(map(sub, taken_back, ready))
        self.send.record_all(map(sub, sent, taken_back))
        self.total.record_all(map(sub, sent, received))

    def add(self, other: ApiMetrics) -> None:
        """Adds what another API's metrics have recorded."""
        other.fold()
        for version, n in other.by_version.items():
            self.by_version[version] = self.by_version.get(version, 0) + n
        for name, n in other.errors.items():
            self.errors[name] = self.errors.get(name, 0) + n
        for _, attribute, _ in (*_TIMES, *_SIZES):
            getattr(self, attribute).add(getattr(other, attribute))


class Metrics(Registry):
    """A broker's registry."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, ApiMetrics] = {}
        self.steps = LoopSteps()
        self.collector(self._request_families)
        self.collector(lambda: self.steps.families(self._now_ns))
        self._now_ns = 0

    def api(self, name: str) -> ApiMetrics:
        """The metrics of an API ("Produce"), or of a kind of Fetch ("FetchConsumer")."""
        found = self.requests.get(name)
        if found is None:
            found = self.requests[name] = ApiMetrics()
        return found

    def collect(self, now_ns: int) -> Iterator[Family]:
        self._now_ns = now_ns
        return super().collect(now_ns)

    def by_name(self) -> dict[str, ApiMetrics]:
        """The metrics by API; Fetch is the sum of its two kinds."""
        for api in self.requests.values():
            api.fold()
        found = dict(self.requests)
        kinds = [found[name] for name in _FETCHES if name in found]
        if kinds:
            both = ApiMetrics()
            for api in (*kinds, *filter(None, [found.get("Fetch")])):
                both.add(api)
            found["Fetch"] = both
        return found

    def _request_families(self) -> Iterable[Family]:
        apis = self.by_name()
        requests, errors = [], []
        for name, api in apis.items():
            for version, n in sorted(api.by_version.items()):
                requests.append(Sample("", labels(request=name, version=version), n))
            for error, n in sorted(api.errors.items()):
                errors.append(Sample("", labels(request=name, error=error), n))
        yield Family(_PREFIX + "requestspersec", "counter", "Requests answered", requests)
        yield Family(_PREFIX + "errorspersec", "counter", "Error codes in answers", errors)
        for suffix, attribute, help_ in _TIMES:
            yield self._histograms_of(apis, suffix, attribute, f"Time {help_}")
        for suffix, attribute, help_ in _SIZES:
            yield self._histograms_of(apis, suffix, attribute, help_)

    def _histograms_of(
        self, apis: Mapping[str, ApiMetrics], suffix: str, attribute: str, help_: str
    ) -> Family:
        samples: list[Sample] = []
        for name, api in apis.items():
            if attribute in _OF_RECORDS and not name.startswith(_CONVERTING):
                continue
            histogram: TimeHistogram = getattr(api, attribute)
            samples.extend(histogram_samples(histogram, labels(request=name), self._now_ns))
        return Family(_PREFIX + suffix, "summary", help_, samples)
