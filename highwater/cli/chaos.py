"""`highwater chaos` and `highwater demo`: a cluster, a workload, faults, and a verdict."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from highwater.cli.again import command_again
from highwater.cli.error_lines import clear_errors, complain
from highwater.cli.option_values import named_values, zookeeper_option
from highwater.cli.places import OutputFile, OutputFolder

if TYPE_CHECKING:
    from highwater.cluster.target import Target

F = TypeVar("F", bound=Callable[..., Any])


_OPTIONS = [
    click.option("--seed", type=int, help="Decides the faults.  [default: by chance]"),
    click.option(
        "--runtime",
        type=click.Choice(["auto", "process", "compose"]),
        default="auto",
        show_default=True,
        help="Processes on this machine, or containers; auto is process.",
    ),
    click.option(
        "--faults",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A schedule (JSON, YAML) instead of the seed's.",
    ),
    click.option(
        "--out",
        type=OutputFolder(),
        help="The run's folder.  [default: runs/TIME-SEED]",
    ),
    click.option("--keep", is_flag=True, help="Keep the brokers' data after a valid run too."),
    click.option(
        "--engine",
        type=click.Choice(["auto", "spark", "duckdb"]),
        default="auto",
        show_default=True,
        help="Who runs the checks; auto is Spark where it is there.",
    ),
    click.option(
        "--workload",
        "workloads",
        type=click.Choice(
            ["transactions", "java-transactions", "groups", "consumer-groups", "share"]
        ),
        multiple=True,
        help="Beside the writers; may be given several times.  transactions: tellers that move "
        "money, and an exactly-once copier, by librdkafka, or by the Java client (of version 2,"
        " where the brokers have it); groups: members that come, leave and crash, of the classic"
        " protocol, or of the consumer protocol (KIP-848); share: a share group (KIP-932) of the"
        " Java client's members.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(1, 100_000),
        default=100.0,
        show_default=True,
        help="Records a second per producer.",
    ),
    click.option(
        "--override",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE",
        callback=named_values,
        help="A broker property; may be given several times.",
    ),
    click.option(
        "--secure",
        is_flag=True,
        help="The workload's clients come over TLS, log in, and have rights for the run's topics"
        " alone; processes only.",
    ),
    click.option(
        "--apache",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Break Apache Kafka from this folder instead (the oracle).",
    ),
    click.option(
        "--target",
        metavar="TARGET",
        help="Break this instead of our own brokers: apache:VERSION, apache:VERSION-kraft,"
        " apache:VERSION-apart, the cluster at HOST:PORT, or compose:FILE, a Compose project"
        " (docs/targets.md).",
    ),
    click.option(
        "--service",
        "services",
        multiple=True,
        metavar="NAME",
        help="A broker's service of --target compose:FILE; may be given several times."
        "  [default: all that answer as brokers]",
    ),
    click.option(
        "--target-config",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="How a client of --target HOST:PORT connects, where it asks for TLS or a login: a file"
        " for --command-config of Kafka's tools.",
    ),
    *(
        click.option(
            f"--{verb}-command",
            metavar="COMMAND",
            default="",
            help=f"What {what} a broker of --target HOST:PORT; {{id}}, {{host}} and {{port}} are"
            " the broker's.",
        )
        for verb, what in (
            *(("kill", "kills"), ("stop", "stops"), ("start", "starts")),
            *(("pause", "pauses"), ("resume", "resumes")),
        )
    ),
    click.option(
        "--zookeeper",
        metavar="WHICH",
        callback=zookeeper_option,
        help="`java`: ZooKeeper's own server; `embedded`: Highwater's, which needs no Java;"
        " HOST:PORT[,...][/CHROOT]: one that runs.  [default: java where it can run here, else"
        " embedded]",
    ),
    click.option(
        "--broker-source",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        hidden=True,
        help="Run the brokers from this copy of the source.",
    ),
    click.option(
        "--json",
        "json_file",
        type=OutputFile(),
        help="Write the verdict there too.",
    ),
]
"""The options of both commands, except for the default of --duration."""


def _options(duration: float) -> Callable[[F], F]:
    seconds = click.option(
        "--duration",
        default=duration,
        show_default=True,
        type=click.FloatRange(1, 86400),
        help="Seconds of workload; longer where the faults that must be seen need more.",
    )
    seed, *others = _OPTIONS

    def decorate(function: F) -> F:
        for option in reversed([seed, seconds, *others]):
            function = option(function)
        return function

    return decorate


@click.command()
@_options(40.0)
def demo(**options: Any) -> None:
    """The whole story: start a cluster, break it under load, and prove what held.

    Takes about two minutes: --duration, and as long again to heal, read everything back and check.

    \b
    Example:
      highwater demo --seed 7 --duration 40
    """
    _run(**options)


_APP_OPTIONS = [
    click.option("--app", metavar="COMMAND", help="Judge your own application (docs/app.md)."),
    click.option(
        "--copies", default=1, show_default=True, type=click.IntRange(1, 20), help="Of --app."
    ),
    click.option("--input", metavar="TOPIC", help="What the application reads; it is fed."),
    click.option("--output", metavar="TOPIC", help="What the application writes."),
    click.option(
        "--match",
        default="$.id",
        show_default=True,
        metavar="PATH",
        help="The id that an input and its output have in common, in their JSON.",
    ),
    click.option(
        "--group", default="app", show_default=True, help="KAFKA_GROUP_ID of the application."
    ),
    click.option("--exactly-once", is_flag=True, help="An input must not appear twice either."),
    click.option("--any-order", is_flag=True, help="Outputs of one key may change places."),
    click.option("--no-errors", is_flag=True, help="Refuse nothing that it writes with an error."),
    click.option(
        "--within",
        default=60.0,
        show_default=True,
        type=click.FloatRange(1, 3600),
        help="Seconds until an input has to appear.",
    ),
    click.option(
        "--values",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Inputs, one JSON object a line; each gets an id of its own.  [default: only ids]",
    ),
]


_WATCH = click.option(
    "--watch",
    is_flag=True,
    help="Have Spark look on (spark/watch.py), and end the workload at the first violation.",
)


_APP_NAMES = (
    *(
        "app",
        "copies",
        "input",
        "output",
        "match",
        "group",
        "exactly_once",
        "any_order",
        "no_errors",
    ),
    *("within", "values"),
)


def _app_options(function: F) -> F:
    for option in reversed(_APP_OPTIONS):
        function = option(function)
    return function


@click.command()
@_options(60.0)
@_WATCH
@_app_options
def chaos(**options: Any) -> None:
    """Run a workload of real clients, or your own application, inject faults, and give a verdict.

    Exit code: 0 valid, 1 invalid, 2 void or unknown, 3 where the run could not be carried out.

    \b
    Examples:
      highwater chaos --seed 3 --duration 120
      highwater chaos --workload transactions --workload groups
      highwater chaos --faults my-faults.json --out runs/mine
      highwater chaos --secure --workload groups
      highwater chaos --target apache:4.2.0
      highwater chaos --target localhost:9092 --kill-command 'docker kill kafka-{id}' \\
        --start-command 'docker start kafka-{id}'
      highwater chaos --target compose:compose.yaml
      highwater chaos --watch --duration 600
      highwater chaos --app "python my_app.py" --copies 3 --input orders --output invoices
    """
    about = {name: options.pop(name) for name in _APP_NAMES}
    if about["app"] is None:
        _run(**options)
    else:
        _run_app(**options, **about)


def _run(
    *,
    seed: int | None,
    duration: float,
    runtime: str,
    faults: Path | None,
    out: Path | None,
    keep: bool,
    engine: str,
    rate: float,
    workloads: tuple[str, ...],
    overrides: dict[str, str],
    secure: bool,
    apache: Path | None,
    target: str | None,
    services: tuple[str, ...],
    target_config: Path | None,
    zookeeper: str,
    broker_source: Path | None,
    json_file: Path | None,
    watch: bool = False,
    **commands: str,
) -> None:
    from highwater.chaos import run as chaos_run
    from highwater.chaos.progress import Progress
    from highwater.cluster.faults.schedule_form import load
    from highwater.cluster.faults.verb_table import VERBS
    from highwater.cluster.processes.programs import ApacheKafka, Highwater

    if {"transactions", "java-transactions"} <= set(workloads):
        raise click.UsageError("--workload transactions and java-transactions: give one of them")
    if zookeeper and runtime == "compose":
        raise click.UsageError("--runtime compose has ZooKeeper's own image: leave --zookeeper out")
    if secure and (target is not None or runtime == "compose"):
        raise click.UsageError(
            "--secure is for brokers that the run itself starts, as processes: for another cluster"
            " give --target-config"
        )
    if secure and "share" in workloads:
        raise click.UsageError("--secure gives no rights to a share group: leave one of them out")
    if engine == "spark":
        _need_spark()
    if seed is None:
        seed = random.SystemRandom().randrange(1_000_000)
    with clear_errors(exit_code=3):
        aimed = _target(apache, target, broker_source, commands, services, target_config, zookeeper)
        for name in workloads:
            _need_release(name, apache, aimed)
        options = chaos_run.Options(
            out=out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}",
            seed=seed,
            duration_s=duration,
            runtime="process" if aimed else chaos_run.choose_runtime(runtime),
            schedule=load(faults, VERBS) if faults is not None else None,
            keep=keep,
            rate=rate,
            workloads=workloads,
            engine=engine,
            program=ApacheKafka(apache) if apache is not None else Highwater(broker_source),
            zookeeper=zookeeper,
            target=aimed,
            properties=overrides,
            secure=secure,
            watch=watch,
            again=command_again(seed),
        )
        with Progress() as progress:
            progress.say(f"seed {seed}, folder {options.out}")
            verdict = chaos_run.execute(options, progress)
        _show(verdict, options.out)
        if json_file is not None:
            json_file.write_text((options.out / "verdict.json").read_text())
        raise SystemExit(verdict.exit_code)


def _need_spark() -> None:
    """Before the run, not after it: exit code 3 where Spark cannot judge it."""
    from highwater.verdict.by_spark.spark_submit import SparkMissing, find

    try:
        find(click.echo)
    except SparkMissing as error:
        complain(str(error))
        raise SystemExit(3) from None


def _need_release(workload: str, apache: Path | None, target: Target | None) -> None:
    from highwater.cluster.processes.programs import numbers
    from highwater.cluster.target import ApacheRelease

    needs = {
        "consumer-groups": ((4, 0), "groups of KIP-848"),
        "share": ((4, 2), "share groups that are ready for production"),
    }
    first, what = needs.get(workload, ((), ""))
    old = isinstance(target, ApacheRelease) and numbers(target.version) < first
    if first and (apache is not None or old):
        since = ".".join(map(str, first))
        raise click.UsageError(
            f"--workload {workload}: {target or apache} has no {what}; Apache Kafka has them from"
            f" {since} on (--target apache:4.2.0)"
        )


def _target(
    apache: Path | None,
    target: str | None,
    source: Path | None,
    given: dict[str, str],
    services: tuple[str, ...],
    config: Path | None = None,
    zookeeper: str = "",
) -> Target | None:
    """`given`: the options --kill-command and so on."""
    from highwater.cluster.remote.remote_cluster import AddressTarget, Commands
    from highwater.cluster.target import ApacheRelease, parse

    if (apache is not None) + (target is not None) + (source is not None) > 1:
        raise click.UsageError("--target names what is broken: leave out --apache")
    in_compose = target is not None and target.startswith("compose:")
    if services and not in_compose:
        raise click.UsageError("--service is for --target compose:FILE")
    commands = Commands(**{n.removesuffix("_command"): text for n, text in given.items()})
    found = None if target is None else parse(target, commands, services, config)
    if commands != Commands() and (in_compose or not isinstance(found, AddressTarget)):
        raise click.UsageError("--kill-command and its like are for --target HOST:PORT")
    if config is not None and (in_compose or not isinstance(found, AddressTarget)):
        raise click.UsageError("--target-config is for --target HOST:PORT")
    if zookeeper and found is not None:
        if not isinstance(found, ApacheRelease) or found.kraft:
            raise click.UsageError(f"--zookeeper: {found} has none that a run could start")
        return replace(found, zookeeper=zookeeper)
    return found


def _show(verdict: Any, out: Path) -> None:
    from rich.console import Console

    from highwater.verdict.plain_table import example_lines, seen_lines, word_lines
    from highwater.verdict.report.colour_table import verdict_table

    console = Console()
    console.print(f"{verdict.headline}\n", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_table(verdict))
    for line in [*word_lines(verdict), *example_lines(verdict), *verdict.notes]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"\nverdict   {verdict.verdict}", highlight=False)
    console.print(f"folder    {out.absolute()}", highlight=False, soft_wrap=True)
    console.print(f"report    {out.absolute() / 'report.html'}", highlight=False, soft_wrap=True)
    for line in seen_lines(verdict):
        console.print(line, markup=False, highlight=False)


def _run_app(**given: Any) -> None:
    import trio

    from highwater.chaos.aimed.app_verbs import VERBS
    from highwater.chaos.app_options import AppOptions
    from highwater.chaos.app_run import AppRun
    from highwater.chaos.progress import Progress
    from highwater.chaos.run import with_signals
    from highwater.cluster.faults.schedule_form import load
    from highwater.cluster.processes.programs import ApacheKafka, Highwater, Program
    from highwater.cluster.target import ApacheRelease
    from highwater.verdict.contracts.contract_model import ContractError

    if not given["input"] or not given["output"] or given["input"] == given["output"]:
        raise click.UsageError("--app needs --input TOPIC and --output TOPIC, two of them")
    if given["workloads"] or given["runtime"] == "compose":
        raise click.UsageError("--app runs on processes, and without --workload")
    if given["secure"]:
        raise click.UsageError("--secure is for runs without --app")
    if given["watch"]:
        raise click.UsageError("--watch is for runs without --app")
    if given["engine"] == "spark":
        raise click.UsageError(
            "--app is judged by DuckDB; by Spark: spark-submit spark/contract.py"
        )
    seed = random.SystemRandom().randrange(1_000_000) if given["seed"] is None else given["seed"]
    faults, apache = given["faults"], given["apache"]
    with clear_errors(exit_code=3):
        commands = {n: text for n, text in given.items() if n.endswith("_command")}
        asked = (apache, given["target"], given["broker_source"], commands)
        aimed = _target(*asked, (), given["target_config"], given["zookeeper"])
        program: Program = Highwater(given["broker_source"])
        if aimed is not None:
            if not isinstance(aimed, ApacheRelease):
                raise click.UsageError("--app needs a cluster of its own: --target apache:VERSION")
            program = aimed.program()
        elif apache is not None:
            program = ApacheKafka(apache)
        try:
            options = AppOptions(
                out=given["out"] or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}",
                seed=seed,
                duration_s=given["duration"],
                schedule=load(faults, VERBS) if faults is not None else None,
                exactly_once=given["exactly_once"],
                ordered=not given["any_order"],
                errors=not given["no_errors"],
                within_s=given["within"],
                values=_values(given["values"]),
                program=program,
                zookeeper=given["zookeeper"],
                properties=given["overrides"],
                **{n: given[n] for n in ("app", "copies", "input", "output", "match", "group")},
                rate=given["rate"],
                again=command_again(seed),
            )
            with Progress() as progress:
                progress.say(f"seed {seed}, folder {options.out}")
                run = AppRun(options, progress)
                judgement = trio.run(with_signals, run.execute)
        except ContractError as error:
            raise click.UsageError(f"--match, --input, --output: {error}") from None
        _show_app(judgement, options.out)
        if given["json_file"] is not None:
            given["json_file"].write_text((options.out / "verdict.json").read_text())
        raise SystemExit(judgement.exit_code)


def _values(file: Path | None) -> list[Any]:
    if file is None:
        return [{}]
    values = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise click.UsageError(f"{file}, line {number}: not JSON: {error}") from None
    if not values:
        raise click.UsageError(f"{file} holds no line: give it a JSON object")
    return values


def _show_app(judgement: Any, out: Path) -> None:
    from rich.console import Console

    from highwater.verdict.plain_table import example_lines
    from highwater.verdict.report.colour_table import verdict_table

    console = Console()
    console.print(f"{judgement.headline}\n", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_table(judgement))
    for line in [*example_lines(judgement), *judgement.notes]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"\nverdict   {judgement.verdict}", highlight=False)
    console.print(f"folder    {out.absolute()}", highlight=False, soft_wrap=True)
    console.print(f"report    {out.absolute() / 'report.html'}", highlight=False, soft_wrap=True)
