"""Spreads seeds of the simulation over Spark's executors, and gathers what they found.

    spark-submit spark/simulate.py --seeds 0..9999 --out run.jsonl
    spark-submit --master spark://host:7077 spark/simulate.py --seeds 0..9999 --out run.jsonl
    spark-submit spark/simulate.py --seeds 0..999 --pace 0.3 --transactions --groups --out run.jsonl

It takes the workloads and faults of `highwater sim` by the same flags.  Seeds depend on nothing, so
each task is a small range of them.  The result is the log of a run, as `highwater sim --log` writes
it: `python -m highwater.simulation.run_log run.jsonl` renders it, and an existing log is continued.
Executors need Highwater and what it depends on: a clone at the same path as here, or an
installation.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from highwater.simulation.options import Options

ROOT = str(Path(__file__).resolve().parents[1])
SEEDS_A_TASK = 5


def _find_highwater(root: str) -> None:
    if importlib.util.find_spec("highwater") is None:
        sys.path.insert(0, root)


def simulate(seeds: Iterable[int], asked: dict[str, Any], root: str) -> Iterator[dict[str, Any]]:
    """Runs in an executor: one line of the log for each seed."""
    _find_highwater(root)
    from highwater.simulation.options import Options
    from highwater.simulation.seed_run import simulate as run
    from highwater.simulation.seeds import replay_command

    options = Options(**asked)
    for seed in seeds:
        outcome = run(seed, options)
        outcome.replay = replay_command(seed, options)
        yield outcome.as_dict()


def arguments(words: Sequence[str] | None = None) -> tuple[range, Path, Options]:
    """The seeds, the log, and the options of each seed."""
    from highwater.simulation.options import Options
    from highwater.simulation.part_list import SWITCHES

    parser = argparse.ArgumentParser(
        description="Runs seeds of Highwater's simulation on Spark.",
        epilog="example: spark-submit spark/simulate.py --seeds 0..999 --groups --out run.jsonl; "
        "`highwater sim --help` says what each flag adds",
    )
    parser.add_argument("--seeds", required=True, metavar="A..B", help="both ends included")
    parser.add_argument("--out", required=True, help="the log; where it is there, it goes on")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load and faults (30)")
    parser.add_argument("--pace", type=float, default=1.0, help="how busy the clients are (1.0)")
    parser.add_argument("--no-faults", dest="faults", action="store_false")
    for name in SWITCHES:
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    args = parser.parse_args(words)
    first, dots, last = args.seeds.partition("..")
    try:
        seeds = range(int(first), int(last if dots else first) + 1)
    except ValueError:
        parser.error(f"--seeds {args.seeds}: name a range, as in 0..99")
    if not 0.01 <= args.pace <= 100:
        parser.error(f"--pace {args.pace:g}: give a number from 0.01 to 100")
    switched = {name: getattr(args, name) for name in SWITCHES}
    options = Options(seconds=args.seconds, pace=args.pace, faults=args.faults, **switched)
    return seeds, Path(args.out), options


def main() -> int:
    _find_highwater(ROOT)
    seeds, out, options = arguments()
    from pyspark.sql import SparkSession

    from highwater.simulation.run_log import RunLog, asked
    from highwater.simulation.seed_outcome import Outcome
    from highwater.simulation.seeds import Summary

    log = RunLog(out, options)
    summary = Summary()
    for outcome in log.done:
        summary.add(outcome)
    there = {outcome.seed for outcome in log.done}
    todo = [seed for seed in seeds if seed not in there]
    spark = SparkSession.builder.appName("highwater-simulate").getOrCreate()
    began, wanted, root = time.monotonic(), asked(options), ROOT
    if todo:
        tasks = max(len(todo) // SEEDS_A_TASK, 1)
        work = spark.sparkContext.parallelize(todo, tasks)
        lines = work.mapPartitions(lambda part: simulate(part, wanted, root))
        for line in lines.toLocalIterator(prefetchPartitions=True):
            outcome = Outcome.from_dict(line)
            log.add(outcome)
            summary.add(outcome)
            if not outcome.ok:
                print(f"simulate: seed {outcome.seed}: {outcome.violation}", flush=True)
                print(f"simulate: replay: {outcome.replay}", flush=True)
    master = spark.sparkContext.master
    spark.stop()
    print(
        f"simulate: {summary.seeds} seeds, {len(summary.broken)} with a broken rule, "
        f"{len(summary.faults)} kinds of faults, {len(summary.pairs)} pairs, on {master} in "
        f"{time.monotonic() - began:.0f} s; never happened: {', '.join(summary.never()) or '-'}",
        flush=True,
    )
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
