"""`highwater bench`: speed and memory, compared with Apache Kafka on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.bench.bench_all import everything
from highwater.cli.bench.bench_cpu import cpu
from highwater.cli.bench.bench_failover import control, failover
from highwater.cli.bench.bench_fetch import fetch_wait
from highwater.cli.bench.bench_flat import flat
from highwater.cli.bench.bench_options import (
    compare,
    comparing,
    dir_option,
    json_option,
    say,
    show_rows,
    working,
    write_json,
)
from highwater.cli.bench.bench_starts import starts
from highwater.cli.bench.bench_steps import steps
from highwater.cli.sim import SeedRange


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
@click.option(
    "--security",
    "securities",
    type=click.Choice(["plaintext", "ssl", "sasl_ssl"]),
    multiple=True,
    help="What the clients speak, on both sides; may be given more than once.  "
    "[default: plaintext]",
)
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
    securities: tuple[str, ...],
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
      highwater bench produce --against apache --security plaintext --security sasl_ssl
    """
    from highwater.bench.produce import BATCHES, KIB, Plan, run

    plan = Plan(
        batches=tuple(b * KIB for b in batches) or BATCHES,
        record_bytes=record_bytes,
        acks=acks,
        securities=tuple(dict.fromkeys(securities)) or ("plaintext",),
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


@bench.command()
@click.option("--members", default=8, show_default=True, type=click.IntRange(3, 50))
@click.option("--partitions", default=24, show_default=True, type=click.IntRange(1, 500))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@comparing
def rebalance(
    members: int,
    partitions: int,
    rounds: int,
    against: str | None,
    json_file: Path | None,
    folder: Path | None,
) -> None:
    """How long a group needs after a leave, a crash, and its coordinator's death.

    \b
    Example:
      highwater bench rebalance --members 8 --against apache
    """
    from highwater.bench.rebalancing import Plan, run

    plan = Plan(members, partitions, rounds)
    compare(run, plan, against=against, json_file=json_file, folder=folder)


@bench.command()
@click.option("--idle", default=4900, show_default=True, type=click.IntRange(1))
@click.option("--busy", default=100, show_default=True, type=click.IntRange(1))
@click.option("--rate", default=500.0, show_default=True, help="Requests a second in all.")
@click.option("--seconds", default=20.0, show_default=True, help="Measured time of each load.")
@json_option
@dir_option
def connections(
    idle: int, busy: int, rate: float, seconds: float, json_file: Path | None, folder: Path | None
) -> None:
    """Thousands of idle connections: the memory of one, and what they cost the busy ones.

    \b
    Example:
      highwater bench connections --json connections.json
    """
    import trio

    from highwater.bench.connections import Plan, run, table

    plan = Plan(idle=idle, busy=busy, rate=rate, seconds=seconds)
    with working(folder) as work:
        found = trio.run(run, plan, work, say)
        click.echo(table(found))
        write_json(json_file, found.as_json())


@bench.command()
@click.option("--seeds", type=SeedRange(), default="0..9", show_default=True, metavar="A..B")
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Of each seed; the best counts.",
)
@click.option("--seconds", default=30.0, show_default=True, help="Virtual, of load and faults.")
@json_option
def sim(seeds: range, rounds: int, seconds: float, json_file: Path | None) -> None:
    """Virtual seconds a second of one core.

    \b
    Example:
      highwater bench sim --json sim.json
    """
    from highwater.bench.simulation import Broken, Plan, run

    plan = Plan(seeds, rounds, seconds)
    try:
        rows = run(plan, say)
    except Broken as broken:
        raise click.ClickException(
            f"{broken}; `highwater sim --replay` shows it, and its speed can wait"
        ) from broken
    show_rows(rows, "-", json_file)


for command in (everything, failover, fetch_wait, control, starts, steps, cpu, flat):
    bench.add_command(command)
