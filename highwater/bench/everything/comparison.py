"""The rows of `highwater bench all`, each with the ratio that it should reach."""

from __future__ import annotations

from highwater.bench.everything import alone
from highwater.bench.everything.measures import Measure
from highwater.bench.everything.rate_rows import (
    DEFAULTS,
    FOOTPRINT,
    MIXED,
    footprint,
    java_produce,
    mixed,
    produce,
    requests,
    singles,
)
from highwater.bench.everything.turns import Once
from highwater.bench.figures.rows import Line

_ONE_A_BATCH = {"linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 50}


def _rate(name: str, what: str, goal: float, once: Once) -> Measure:
    return Measure(name, (Line(name, what, "MB/s", goal, more_is_better=True),), 3, once)


def _times(name: str, what: str, write: str) -> Measure:
    p50 = Line(f"{name}-p50", f"{what}, p50", "ms", 1 / 0.9)
    p99 = Line(f"{name}-p99", f"{what}, p99", "ms", 3)
    return Measure(name, (p50, p99), 2, singles(write), partitions=1)


def _requests(api: str, title: str, connections: int) -> Measure:
    name = f"{api}-{connections}"
    what = f"{title} requests, {connections} connection{'s' * (connections > 1)}"
    line = Line(name, what, "a second", 2, more_is_better=True)
    return Measure(name, (line,), 1.5, requests(api, connections))


MEASURES: tuple[Measure, ...] = (
    _times("one-in-flight", "one record in flight, acks=all", "write"),
    _rate("produce-16k", "acks=all, librdkafka, 16 KiB batches", 4, produce(batch_kib=16)),
    _rate("produce-128k", "the same, 128 KiB", 2, produce()),
    _rate("produce-1m", "the same, 1 MiB", 2, produce(batch_kib=1024)),
    Measure("footprint", FOOTPRINT, 2, run=footprint),
    _times("produce-to-consume", "from produce to consume, one record", "consume"),
    _rate("acks-1", "acks=1, librdkafka, 128 KiB", 2.5, produce(acks="1")),
    _rate(
        "small-records", "records of 100 B, librdkafka's defaults", 4,
        produce(record_bytes=100, batch_kib=977, settings=DEFAULTS, share=0.2),
    ),
    _rate(
        "one-a-batch", "one record of 100 B a batch, 50 in flight", 1.5,
        produce(record_bytes=100, settings=_ONE_A_BATCH, share=0.01),
    ),
    _rate(
        "idempotent", "idempotent, librdkafka, 128 KiB", 2,
        produce(settings={"enable.idempotence": True}),
    ),
    _rate(
        "transactions-100ms", "transactions of 100 ms, librdkafka", 2,
        produce(transaction=(1 << 30, 0.1), share=0.5),
    ),
    _rate(
        "transactions-100", "transactions of 100 records, librdkafka", 2,
        produce(transaction=(100, 10), share=0.05),
    ),
    _rate("java-defaults", "the Java producer, its defaults", 2.5, java_produce([], share=0.4)),
    _rate(
        "java-128k", "the Java producer, 128 KiB and 5 ms", 1.5,
        java_produce(["batch.size=131072", "linger.ms=5"]),
    ),
    *(
        _requests(api, title, connections)
        for api, title in (("metadata", "Metadata"), ("api-versions", "ApiVersions"))
        for connections in (1, 50)
    ),
    Measure(
        "consume-librdkafka",
        (
            Line("consume", "consume, librdkafka, warm", "MB/s", 2, more_is_better=True),
            Line("consume-cpu", "CPU of the brokers for that", "ms a MB", 5),
        ),
        3,
        alone.consume(alone.librdkafka),
    ),
    Measure(
        "consume-java",
        (
            Line("consume-java", "consume, the Java client, warm", "MB/s", 1, more_is_better=True),
            Line("consume-java-cpu", "CPU of the brokers for that, Java", "ms a MB", 5),
        ),
        4,
        alone.consume(alone.java_client),
    ),
    Measure("mixed", MIXED, 5, run=mixed),
    Measure(
        "start",
        (
            Line("start", "three brokers to ready, less ZooKeeper's own start", "s", 10),
            Line("idle-cpu", "CPU of an idle cluster with 100 partitions", "ms a s", 1),
            Line("memory-partitions", "memory with 1,000 partitions", "MiB PSS", 8),
            Line("create-100", "100 partitions created, and seen by all", "s", 10),
            Line("create-1000", "1,000 partitions created, and seen by all", "s", 10),
        ),
        6,
        run=alone.start,
    ),
    Measure(
        "failover",
        (
            Line("failover-median", "kill -9 to the next ack, median", "s", 30),
            Line("failover-worst", "kill -9 to the next ack, worst", "s", 30),
        ),
        8,
        run=alone.failovers,
    ),
    Measure(
        "compaction",
        (Line("compaction", "compaction of the same bytes", "s", 1),),
        4,
        run=alone.compacted,
    ),
    Measure(
        "restart",
        (Line("restart", "restart with 10 GiB of logs after kill -9, until in the ISR", "s", 2),),
        30,
        run=alone.restart,
        full=True,
    ),
)  # fmt: skip
NAMES = tuple(measure.name for measure in MEASURES)
