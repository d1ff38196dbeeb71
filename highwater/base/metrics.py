"""Numbers about a process: counters, gauges, histograms of times; cheap to keep, read by scrapes.

Everything runs in one thread, so nothing here locks.  A counter is an attribute that grows.  A
gauge is a function that only a scrape calls.  A histogram has log-linear buckets (eight to each
power of two, so a quantile is right within 7 %) in a dict that holds only the used ones. Its
quantiles cover the last one to two scrape windows, its count everything since the start.

A family's name is given in the Confluent dialect (the lower-cased MBean name, as in
`kafka_server_replicamanager_isrshrinkspersec`), which the Confluent dashboards query; `exposition`
writes either that or the dialect of the JMX exporter's example (`..._isrshrinks_total`).  The text
is written by hand: prometheus_client's own Counter would force `_total` on every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar, NamedTuple

Labels = tuple[tuple[str, str], ...]
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
WINDOW_NS = 60_000_000_000
_SHIFT = 7
"""The smallest bucket is 128 ns wide."""
SIZE_SHIFT = _SHIFT


class Counter:
    """Grows by `add`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, n: int = 1) -> None:
        self.value += n


class TimeHistogram:
    """Durations in nanoseconds, shown in milliseconds."""

    unit: ClassVar[float] = 1e6

    __slots__ = ("_counts", "_old", "_rotated_ns", "count", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0
        self._counts: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._rotated_ns = 0

    def record(self, ns: int) -> None:
        self.record_all((ns,))

    def record_all(self, values: Iterable[int]) -> None:
        """Many at once: a call for each would cost more than the counting."""
        counts = self._counts
        for ns in values:
            self.count += 1
            self.sum_ns += ns
            v = ns >> _SHIFT
            if v > 15:
                e = v.bit_length() - 4
                v = (e << 3) + (v >> e)
            counts[v] = counts.get(v, 0) + 1

    def add(self, other: TimeHistogram) -> None:
        """Adds the values that another histogram has recorded."""
        self.count += other.count
        self.sum_ns += other.sum_ns
        for mine, theirs in ((self._counts, other._counts), (self._old, other._old)):
            for bucket, n in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + n

    def rotate(self, now_ns: int) -> None:
        """Forgets values older than the last window; called by the scrape."""
        if now_ns - self._rotated_ns >= WINDOW_NS:
            self._old, self._counts = self._counts, {}
            self._rotated_ns = now_ns

    def quantiles_ms(self, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """Quantiles of the last one to two windows; zeros where nothing happened."""
        merged = dict(self._old)
        for bucket, n in self._counts.items():
            merged[bucket] = merged.get(bucket, 0) + n
        total = sum(merged.values())
        if not total:
            return [0.0] * len(wanted)
        found: list[float] = []
        seen = 0
        ordered = sorted(merged.items())
        position = 0
        bucket, n = ordered[0]
        for quantile in wanted:
            rank = quantile * total
            while seen + n < rank and position + 1 < len(ordered):
                seen += n
                position += 1
                bucket, n = ordered[position]
            found.append(_middle(bucket) / self.unit)
        return found


class SizeHistogram(TimeHistogram):
    """Sizes in bytes, recorded as `size << SIZE_SHIFT` so that small ones have buckets too."""

    unit = float(1 << SIZE_SHIFT)

    __slots__ = ()


def _middle(bucket: int) -> float:
    if bucket < 16:
        low, width = bucket, 1
    else:
        e = (bucket >> 3) - 1
        low, width = (bucket - (e << 3)) << e, 1 << e
    return (low + width / 2) * (1 << _SHIFT)


class Sample(NamedTuple):
    """One line of a scrape."""

    suffix: str
    labels: Labels
    value: float


class Family(NamedTuple):
    name: str
    kind: str
    """counter, gauge or summary."""
    help: str
    samples: Iterable[Sample]
    """May be read only once: samples of thousands of partitions are made as they are written."""


Collector = Callable[[], Iterable[Family]]
Values = Callable[[], float | Mapping[Labels, float] | Iterator[tuple[Labels, float]]]


def labels(**values: object) -> Labels:
    """Label pairs in the order given."""
    return tuple((name.rstrip("_"), str(value)) for name, value in values.items())


class Registry:
    """All families of one process."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._gauges: dict[str, dict[Labels, Values]] = {}
        self._histograms: dict[str, dict[Labels, TimeHistogram]] = {}
        self._help: dict[str, str] = {}
        self._collectors: list[Collector] = []

    def counter(self, name: str, help_: str = "", **label_values: object) -> Counter:
        """The counter of that name and labels, made at the first call; keep it and call `add`."""
        self._describe(name, help_)
        family = self._counters.setdefault(name, {})
        key = labels(**label_values)
        found = family.get(key)
        if found is None:
            found = family[key] = Counter()
        return found

    def histogram(self, name: str, help_: str = "", **label_values: object) -> TimeHistogram:
        """A histogram of times, exposed in milliseconds with quantiles and a count."""
        self._describe(name, help_)
        family = self._histograms.setdefault(name, {})
        key = labels(**label_values)
        found = family.get(key)
        if found is None:
            found = family[key] = TimeHistogram()
        return found

    def gauge(self, name: str, read: Values, help_: str = "", **label_values: object) -> None:
        """`read` gives one number, or one for each set of labels; called at each scrape."""
        self._describe(name, help_)
        self._gauges.setdefault(name, {})[labels(**label_values)] = read

    def remove(self, name: str, **label_values: object) -> None:
        """Removes one series, as of a topic or partition that is gone."""
        key = labels(**label_values)
        self._counters.get(name, {}).pop(key, None)
        self._gauges.get(name, {}).pop(key, None)
        self._histograms.get(name, {}).pop(key, None)

    def collector(self, collect: Collector) -> None:
        """Adds families that are made at each scrape."""
        self._collectors.append(collect)

    def collect(self, now_ns: int) -> Iterator[Family]:
        """All families, each made when the caller asks for it."""
        yield from self._counter_families()
        yield from self._gauge_families()
        yield from self._histogram_families(now_ns)
        for collect in self._collectors:
            yield from list(collect())  # of one moment: the caller may run other tasks in between

    def families(self, now_ns: int) -> list[Family]:
        """All families, sorted by name."""
        return sorted(self.collect(now_ns), key=lambda family: family.name)

    def _describe(self, name: str, help_: str) -> None:
        if help_ or name not in self._help:
            self._help[name] = help_

    def _counter_families(self) -> Iterable[Family]:
        for name, family in list(self._counters.items()):
            samples = [Sample("", key, counter.value) for key, counter in family.items()]
            yield Family(name, "counter", self._help[name], samples)

    def _gauge_families(self) -> Iterable[Family]:
        for name, family in list(self._gauges.items()):
            parts = [_samples_of(key, read()) for key, read in family.items()]
            samples = parts[0] if len(parts) == 1 else chain.from_iterable(parts)
            yield Family(name, "gauge", self._help[name], samples)

    def _histogram_families(self, now_ns: int) -> Iterable[Family]:
        for name, family in list(self._histograms.items()):
            samples: list[Sample] = []
            for key, histogram in family.items():
                samples.extend(histogram_samples(histogram, key, now_ns))
            yield Family(name, "summary", self._help[name], samples)


def _samples_of(
    key: Labels, value: float | Mapping[Labels, float] | Iterator[tuple[Labels, float]]
) -> Iterable[Sample]:
    if isinstance(value, Mapping):
        return [Sample("", key + more, float(v)) for more, v in value.items()]
    if isinstance(value, Iterator):
        return (Sample("", key + more, float(v)) for more, v in value)
    return [Sample("", key, float(value))]


def histogram_samples(histogram: TimeHistogram, key: Labels, now_ns: int) -> Iterable[Sample]:
    """Quantiles in milliseconds, and the count."""
    for quantile, ms in zip(QUANTILES, histogram.quantiles_ms(), strict=True):
        yield Sample("", (*key, ("quantile", str(quantile))), ms)
    yield Sample("_count", key, histogram.count)
    histogram.rotate(now_ns)


CONFLUENT = "confluent"
JMX_EXPORTER = "jmx-exporter"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_JMX_NAMES = {
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate": (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
    ),
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(families: Iterable[Family], dialect: str = CONFLUENT) -> str:
    """The page of a scrape, in Prometheus's text format."""
    return "\n".join(line for family in families for line in family_lines(family, dialect)) + "\n"


def family_lines(family: Family, dialect: str = CONFLUENT) -> Iterator[str]:
    name, kind = family.name, family.kind
    if dialect == JMX_EXPORTER:
        name = _JMX_NAMES.get(name, name)
        if name.endswith("persec"):
            name = name.removesuffix("persec") + "_total"
    elif kind == "counter":
        kind = "untyped"  # a counter's name would have to end in _total
    if family.help:
        yield f"# HELP {name} {family.help}"
    yield f"# TYPE {name} {kind}"
    for sample in family.samples:
        pairs = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in sample.labels)
        braces = f"{{{pairs}}}" if pairs else ""
        yield f"{name}{sample.suffix}{braces} {sample.value:.12g}"
