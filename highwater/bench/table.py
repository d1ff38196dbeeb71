"""The table of benchmarks: a command is made of each row."""

from __future__ import annotations

from highwater.bench import (
    compaction,
    connections,
    control,
    cpu_parts,
    failover,
    fetch_wait,
    flat,
    longest_steps,
    produce,
    rebalancing,
    share_failover,
    simulation,
    starts,
)
from highwater.bench.benchmark import Benchmark
from highwater.bench.everything import all_rows

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        "all",
        "Measure everything, in turn with Apache Kafka: one table, with what each row should reach."
        "\n\nExit code 1 where a row failed.",
        (
            "all --against apache --page bench.html",
            "one-in-flight produce-16k --against apache",
        ),
        all_rows.run,
        all_rows.Options,
        against=("apache",),
        section=lambda *_: ("bench all", "### The table"),
        page=all_rows.Comparison.html,
        problem=all_rows.Comparison.problem,
    ),
    Benchmark(
        "produce",
        "Produce through librdkafka, and report megabytes a second, memory, and time to ready.",
        (
            "produce --against apache --json bench.json",
            "produce --against apache --security plaintext --security sasl_ssl",
        ),
        produce.run,
        produce.Options,
    ),
    Benchmark(
        "compaction",
        "Compact a log of many records over few keys: time, memory, and that the right ones stay.",
        ("compaction --records 10000000 --keys 100000 --against apache",),
        compaction.run,
        compaction.Options,
    ),
    Benchmark(
        "rebalance",
        "How long a group needs after a leave, a crash, and its coordinator's death.",
        (
            "rebalance --members 8 --against apache",
            "rebalance --protocol consumer --against apache:4.2.0",
        ),
        rebalancing.run,
        rebalancing.Options,
        against=("apache", "apache:4.2.0"),
    ),
    Benchmark(
        "share-failover",
        "How long members of a share group get nothing after a leader's or a coordinator's death.",
        ("share-failover --against apache:4.2.0",),
        share_failover.run,
        share_failover.Options,
        against=("apache:4.2.0",),
    ),
    Benchmark(
        "connections",
        "Thousands of idle connections: the memory of one, and what they cost the busy ones.",
        ("connections --json connections.json",),
        connections.run,
        connections.Options,
        against=(),
    ),
    Benchmark(
        "sim",
        "Virtual seconds a second of one core.",
        ("sim --json sim.json",),
        simulation.run,
        simulation.Options,
        against=(),
    ),
    Benchmark(
        "failover",
        "Kill leaders under load: how long until the next write is acknowledged.",
        (
            "failover --against apache --json failover.json",
            "failover --swap --kills 10 --retry-backoff-ms 10",
            "failover --security sasl_ssl --kills 10",
            "failover --against apache --markdown docs/failover.md",
        ),
        failover.run,
        failover.Options,
        section=failover.Options.section,
    ),
    Benchmark(
        "fetch-wait",
        "Read a partition with fetch.min.bytes around max.partition.fetch.bytes.\n\n"
        "Each client in turn, some ten minutes for all; `segments` reads a log of many small ones"
        " by hand.  Exit code 1 where Highwater takes more than 1.5 times as long as the other, and"
        " more than 50 ms longer.",
        (
            "fetch-wait --client librdkafka --against apache",
            "fetch-wait --client kcat --against apache --markdown docs/bench.md",
        ),
        fetch_wait.run,
        fetch_wait.Options,
        section=fetch_wait.Options.section,
        problem=fetch_wait.too_slow,
    ),
    Benchmark(
        "control",
        "Create many partitions in one request, kill the controller, change many ISRs at once:"
        " time and CPU.\n\nWith `--against zookeeper`, exit code 1 where a figure on the embedded"
        " one is more than 1.2 times that on ZooKeeper's own server.",
        (
            "control --against apache --json control.json",
            "control --against apache --markdown docs/failover.md",
            "control --against zookeeper --create 1000 --create 10000 --failover 1000 --rounds 5"
            " --markdown docs/bench.md",
        ),
        control.run,
        control.Options,
        section=control.Options.section,
        problem=control.too_slow,
    ),
    Benchmark(
        "starts",
        "Start clusters from nothing: until they serve, until a test's first record, and their"
        " memory.\n\nApache Kafka's start is in `highwater bench start`.",
        ("starts --against zookeeper --markdown docs/bench.md",),
        starts.run,
        starts.Options,
        against=("zookeeper",),
        zookeeper="embedded",
        section=lambda *_: ("bench starts", "## Starts"),
    ),
    Benchmark(
        "steps",
        "The steps that keep a broker's loop, by name; exit code 1 where one took more than 20 ms.",
        ("steps --json steps.json", "steps --load failover --load group"),
        longest_steps.run,
        longest_steps.Options,
        against=(),
        problem=longest_steps.Found.problem,
    ),
    Benchmark(
        "cpu",
        "Show where the brokers' CPU time of a batch goes: receive and send, parse, write,"
        " replicate.\n\nNeeds py-spy (pip install 'path/to/highwater[profile]'), and the right to"
        " look at processes.",
        ("cpu --load one --load 128k", "cpu --brokers 1", "cpu --markdown docs/scaling.md"),
        cpu_parts.run,
        cpu_parts.Options,
        against=(),
        section=cpu_parts.Options.section,
    ),
    Benchmark(
        "flat",
        "Measure a request with 10 to 5,000 partitions, 1 to 5,000 connections, up to 10 GiB of"
        " log.\n\nOne broker, RF 1; the disk needs 11 GiB.  Some ten minutes.",
        ("flat --page flat.html --markdown docs/scaling.md",),
        flat.run,
        flat.Options,
        against=(),
        page=flat.html,
    ),
)
