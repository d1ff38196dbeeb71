"""`highwater sim`: the whole cluster in one process, in virtual time, seed after seed."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from highwater.cli.error_lines import complain
from highwater.cli.places import OutputFile
from highwater.simulation.part_list import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from highwater.simulation.coverage.reached import Coverage
    from highwater.simulation.options import Options
    from highwater.simulation.run_log import RunLog
    from highwater.simulation.seed_outcome import Outcome
    from highwater.simulation.seeds import Summary
    from highwater.simulation.workloads.part import Part


F = TypeVar("F", bound="Callable[..., Any]")

MANY = 100
"""The number of seeds from which on events that never happened are reported."""


class SeedRange(click.ParamType[range]):
    """`7`, or `0..99` with both ends included."""

    name = "A..B"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        if isinstance(value, range):
            return value
        first, dots, last = str(value).partition("..")
        try:
            start = int(first)
            stop = int(last) if dots else start
        except ValueError:
            self.fail(f"{value!r} is not a seed or a range of seeds: try 0..99", param, ctx)
        if stop < start or start < 0:
            self.fail(f"{value!r} is empty: the first seed comes first, as in 0..99", param, ctx)
        return range(start, stop + 1)


def switches(parts: Sequence[type[Part]]) -> Callable[[F], F]:
    """An option for each flag of the parts."""

    def add(command: F) -> F:
        for part in reversed(parts):
            if part.flag:
                name = f"--{part.flag.replace('_', '-')}"
                command = click.option(name, is_flag=True, help=part.help)(command)
        return command

    return add


@click.command()
@click.option("--seeds", type=SeedRange(), default="0..19", show_default=True, metavar="A..B")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86400),
    default=30.0,
    show_default=True,
    help="Of load and faults.",
)
@click.option(
    "--pace",
    type=click.FloatRange(0.01, 100),
    default=1.0,
    show_default=True,
    help="How busy the clients are.",
)
@click.option(
    "--minutes", type=click.FloatRange(0), default=None, help="Stop after so many real minutes."
)
@click.option(
    "--jobs", type=click.IntRange(0), default=1, show_default=True, help="Processes; 0: one a core."
)
@click.option("--json", "json_file", type=OutputFile(), help="Write a summary there.")
@click.option("--replay", type=int, default=None, metavar="SEED", help="Run one seed, and tell.")
@click.option("--trace", is_flag=True, help="Print every event (with --replay).")
@click.option("--scenario", metavar="NAME", help="Play a named scenario (`list`: which, `all`).")
@click.option("--shrink", is_flag=True, help="Find the fewest faults (with --replay).")
@click.option("--only", metavar="N,N", help="Of the schedule, only these faults (with --replay).")
@click.option(
    "--coverage",
    "coverage_file",
    type=OutputFile(),
    is_flag=False,
    flag_value="coverage.json",
    help="What the seeds reach, as a table and as JSON (default: coverage.json); adds to a file "
    "that is there.",
)
@click.option(
    "--steer",
    is_flag=True,
    help="Vary the fault schedules that reached something new (with --coverage); the numbers of "
    "--seeds are those of the trials.",
)
@click.option(
    "--vary",
    metavar="N,N",
    help="These variations of the schedule (with --replay; --steer names them).",
)
@click.option(
    "--log",
    "log_file",
    type=OutputFile(),
    help="A line a seed; where the file is there, the run goes on.",
)
@click.option("--keep-going", is_flag=True, help="Do not stop at the first broken rule.")
@click.option("--finds", default=1, show_default=True, help="Stop after so many broken seeds.")
@click.option("--faults/--no-faults", default=True, show_default=True)
@switches(PARTS)
def sim(
    seeds: range,
    seconds: float,
    pace: float,
    minutes: float | None,
    jobs: int,
    json_file: Path | None,
    replay: int | None,
    trace: bool,
    keep_going: bool,
    finds: int,
    scenario: str | None,
    shrink: bool,
    only: str | None,
    vary: str | None,
    steer: bool,
    log_file: Path | None,
    coverage_file: Path | None,
    **switched: bool,
) -> None:
    """Runs production brokers against a simulated world, and checks R1-R15 after each step.

    Exits with 1 where a rule was broken, and prints the one command that replays it; with 2 where
    it could not go on.

    \b
    Example:
      highwater sim --seeds 0..99 --jobs 0
      highwater sim --replay 17 --trace
      highwater sim --replay 17 --shrink
      highwater sim --scenario kip-279 --trace
      highwater sim --seeds 0..9999 --jobs 0 --keep-going --log run.jsonl
      highwater sim --seeds 0..499 --jobs 0 --coverage --steer
    """
    from highwater.simulation.options import Options
    from highwater.simulation.seeds import usual_jobs

    if scenario is not None:
        sys.exit(_scenarios(scenario, trace=trace))
    if replay is None:
        _refuse(("--trace", trace), ("--shrink", shrink), ("--only", only), ("--vary", vary))
    options = Options(
        seconds=seconds,
        pace=pace,
        only=_numbers(only),
        vary=_variations(vary),
        trace=click.echo if trace else None,
        coverage=coverage_file is not None,
        **switched,
    )
    if shrink and replay is not None:
        _shrink(replay, options)
    if steer:
        _refuse_to_steer(coverage_file, replay, log_file)
    kept, coverage = _log(log_file, options), _coverage(coverage_file, trace)
    summary = _run(
        [replay] if replay is not None else seeds,
        options,
        kept,
        coverage,
        steer=steer,
        jobs=1 if replay is not None else jobs or usual_jobs(),
        minutes=minutes,
        finds=None if keep_going else finds,
    )
    _tell(summary, json_file)
    if coverage is not None and coverage_file is not None:
        _tell_coverage(coverage, coverage_file)
    sys.exit(1 if summary.broken else 0)


def _refuse(*options: tuple[str, object]) -> None:
    for name, given in options:
        if given:
            raise click.UsageError(f"{name} goes with --replay SEED: it is about one seed")


def _log(file: Path | None, options: Options) -> RunLog | None:
    from highwater.simulation.run_log import LogProblem, RunLog

    try:
        return RunLog(file, options) if file is not None else None
    except LogProblem as problem:
        raise click.UsageError(str(problem)) from problem


def _coverage(file: Path | None, trace: bool) -> Coverage | None:
    if file is None:
        return None
    from highwater.simulation.coverage.reached import Coverage, ReachedProblem
    from highwater.simulation.run_log import commit

    if trace:
        raise click.UsageError("--coverage runs seeds in other processes: leave out --trace")
    coverage = Coverage(commit())
    if file.exists():
        try:
            coverage.merge(Coverage.read(file))
        except ReachedProblem as problem:
            raise click.UsageError(f"--coverage {file}: {problem}") from problem
    return coverage


def _refuse_to_steer(coverage: Path | None, replay: int | None, log: Path | None) -> None:
    if coverage is None:
        raise click.UsageError("--steer goes with --coverage: it goes by what was reached before")
    if replay is not None:
        raise click.UsageError("--steer is about many seeds: leave out --replay")
    if log is not None:
        raise click.UsageError(
            "--steer keeps its runs in the file of --coverage, and goes on there: leave out --log"
        )


def _run(
    chosen: Iterable[int],
    options: Options,
    kept: RunLog | None,
    coverage: Coverage | None,
    *,
    steer: bool,
    **common: Any,
) -> Summary:
    """Runs them all; ends the program where a process dies."""
    from highwater.simulation.seed_processes import WorkerDied
    from highwater.simulation.seeds import run_seeds
    from highwater.simulation.steering import Steering, run_steered

    try:
        if steer and coverage is not None:
            progress = partial(_progress, options, None, None)
            return run_steered(chosen, options, Steering(coverage), progress=progress, **common)
        progress = partial(_progress, options, kept, coverage)
        done = kept.done if kept is not None else ()
        return run_seeds(chosen, options, progress=progress, done=done, **common)
    except WorkerDied as died:
        complain(str(died))
        sys.exit(2)


def _variations(text: str | None) -> tuple[str, ...]:
    from highwater.simulation.faults.variations import check

    variations = tuple(part.strip() for part in (text or "").split(",") if part)
    for variation in variations:
        try:
            check(variation)
        except ValueError as error:
            raise click.UsageError(f"--vary: {error}") from None
    return variations


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise click.UsageError(f"--only {text}: name positions, as in --only 0,3") from None


def _scenarios(name: str, *, trace: bool) -> int:
    """Plays one scenario, or all; gives the exit code."""
    from highwater.simulation.scenarios import ALL, play

    if name == "list":
        for each in ALL.values():
            click.echo(f"{each.name:22} {each.what}")
        return 0
    if name != "all" and name not in ALL:
        raise click.UsageError(f"there is no scenario {name}: try --scenario list")
    failed = 0
    for each in ALL.values() if name == "all" else [ALL[name]]:
        played = play(each, trace=click.echo if trace else None)
        failed += not played.ok
        click.echo(f"{each.name}: {'as it must be' if played.ok else 'FAILED'}")
        for line in (played.problem, played.violation):
            if line is not None:
                click.echo(f"  {line}")
        if not trace:
            for event in played.last_events:
                click.echo(f"    {event}")
    return 1 if failed else 0


def _shrink(seed: int, options: Options) -> None:
    """Finds the smallest schedule, prints it, and ends the program."""
    from dataclasses import replace

    from highwater.simulation.seeds import replay_command
    from highwater.simulation.shrink import shrink

    try:
        outcome = shrink(seed, options, tell=click.echo)
    except ValueError as nothing:
        raise click.ClickException(str(nothing)) from nothing
    click.echo(f"seed {seed}: {outcome.violation}")
    for fault in outcome.schedule:
        click.echo(f"  {fault}")
    click.echo(f"replay: {replay_command(seed, replace(options, only=outcome.only))}")
    sys.exit(1)


def _progress(
    options: Options,
    kept: RunLog | None,
    coverage: Coverage | None,
    summary: Summary,
    outcome: Outcome,
) -> None:
    if coverage is not None:
        coverage.add(outcome.seed, outcome.reached)
    if kept is not None:
        kept.add(outcome)
    if not outcome.ok:
        _tell_broken(outcome, options)
    if sys.stderr.isatty() or summary.seeds % 20 == 0:
        rate = summary.seeds / max(summary.real_seconds, 1e-9)
        line = f"{summary.seeds} seeds, {rate:.2f} a second, {len(summary.broken)} broken"
        if sys.stderr.isatty():
            click.echo(f"\r{line} ", nl=False, err=True)
        else:
            click.echo(line, err=True)


def _tell_broken(outcome: Outcome, options: Options) -> None:
    click.echo(f"seed {outcome.seed}: {outcome.violation}")
    if options.trace is None:
        for line in outcome.last_events:
            click.echo(f"  {line}")
    click.echo(f"replay: {outcome.replay}")


def _tell_coverage(coverage: Coverage, file: Path) -> None:
    coverage.write(file)
    click.echo(coverage.table())
    if coverage.kept:
        varied = sum(bool(kept.vary) for kept in coverage.kept)
        click.echo(
            f"  {len(coverage.kept)} runs reached something first, {varied} of them variations"
        )
    click.echo(f"  each thing, and what was never reached: {file}")


def _tell(summary: Summary, json_file: Path | None) -> None:
    if sys.stderr.isatty():
        click.echo(err=True)  # the progress stays on its line
    data = summary.as_dict()
    if json_file is not None:
        json_file.write_text(json.dumps(data, indent=2) + "\n")
    click.echo(
        f"{data['seeds']} seeds, {len(data['violations'])} with a broken rule; "
        f"{data['virtual_seconds']:g} virtual seconds in {data['real_seconds']:g} s "
        f"({data['virtual_seconds_per_second_and_core']:g} a second and core), "
        f"{data['steps']} steps, {data['checks']} checks"
    )
    click.echo("what happened in them (counts of what was met, none of which is a mistake):")
    for name in ("operations", "seen", "faults"):
        pairs = ", ".join(f"{key} {value}" for key, value in data[name].items())
        click.echo(f"  {name}: {pairs or 'none'}")
    click.echo(f"  pairs of faults at once: {data['fault_pairs']}")
    if waits := data["longest_waits_while_well"]:
        told = ", ".join(f"{kind} {seconds:.3f} s" for kind, seconds in waits.items())
        click.echo(f"  longest waits while all was well: {told}")
    click.echo(
        f"  losses that Kafka allows: {data['expected_losses']} records, which one broker alone"
        " had acknowledged (acks=1), or that an unclean election gave up"
    )
    if data["seeds"] >= MANY and data["never"]:
        click.echo(f"  NEVER HAPPENED: {', '.join(data['never'])}")
