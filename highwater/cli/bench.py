"""`highwater bench`: speed and memory, compared with Apache Kafka on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench_failover import control, failover
from highwater.cli.bench_fetch import fetch_wait
from highwater.cli.bench_options import compare, comparing
from highwater.cli.bench_pipeline import COMMANDS as PIPELINE
from highwater.cli.bench_rebalance import rebalance
from highwater.cli.bench_sim import sim


@click.group()
def bench() -> None:
    """Measure, against Apache Kafka too.

    \b
    Example:
      highwater bench produce --against apache --json bench.json
    """


@bench.command()
@click.option(
    "--batch-kib",
    "batches",
    type=click.IntRange(1, 4000),
    multiple=True,
    help="Batch size; may be given more than once.  [default: 16, 128, 1024]",
)
@click.option("--record-bytes", default=1000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(1, 9))
@click.option("--partitions", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--megabytes", default=400.0, show_default=True, help="Measured in each load.")
@click.option("--seconds", default=10.0, show_default=True, help="A load ends then at the latest.")
@click.option("--warm-up", default=0.3, show_default=True, help="Seconds of load before that.")
@click.option("--starts", default=3, show_default=True, type=click.IntRange(1))
@comparing
def produce(
    against: str | None,
    json_file: Path | None,
    batches: tuple[int, ...],
    record_bytes: int,
    acks: str,
    brokers: int,
    partitions: int,
    rounds: int,
    megabytes: float,
    seconds: float,
    warm_up: float,
    starts: int,
    folder: Path | None,
) -> None:
    """Produce through librdkafka, and report megabytes a second, memory, and time to ready.

    \b
    Example:
      highwater bench produce --against apache --json bench.json
    """
    from highwater.bench.produce import BATCHES, KIB, Plan, run

    plan = Plan(
        batches=tuple(b * KIB for b in batches) or BATCHES,
        record_bytes=record_bytes,
        acks=acks,
        partitions=partitions,
        brokers=brokers,
        rounds=rounds,
        measure_mb=megabytes,
        measure_s=seconds,
        warm_up_s=warm_up,
        starts=starts,
    )
    compare(run, plan, against=against, json_file=json_file, folder=folder)


@bench.command()
@click.option("--records", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--keys", default=10_000, show_default=True, type=click.IntRange(1, 99_999_999))
@click.option(
    "--segment-mib", default=8, show_default=True, type=click.IntRange(1, 1024), help="Its size."
)
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1))
@comparing
def compaction(
    records: int,
    keys: int,
    segment_mib: int,
    rounds: int,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """Compact a log of many records over few keys: time, memory, and that the right ones stay.

    \b
    Example:
      highwater bench compaction --records 10000000 --keys 100000 --against apache
    """
    from highwater.bench.compaction import Plan, run
    from highwater.bench.loads.keyed import Keyed

    plan = Plan(Keyed(records, keys), segment_mib << 20, rounds)
    compare(run, plan, against=against, json_file=json_file, folder=folder)


bench.add_command(failover)
bench.add_command(fetch_wait)
bench.add_command(control)
bench.add_command(rebalance)
bench.add_command(sim)
for command in PIPELINE:
    bench.add_command(command)
