"""`highwater verify --contract FILE --watch`: offenders named while the topics are written, by
spark/contract.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from highwater.child_processes import Child, StartError
from highwater.verdict.by_spark import spark_submit
from highwater.verdict.location import spark_folder

END_S = 90.0
SAID = re.compile(r"contract: |K\d+ ")
"""Begins a line that is meant for people; the rest is in STATE/watch.log alone."""


def watch_contract(
    contract: Path | None,
    run: Path | None,
    bootstrap: str | None,
    command_config: Path | None,
    master: str,
    state: Path | None,
    more: Mapping[str, float | bool | None],
) -> int:
    """Prints what the job says, as it says it; the job's exit code.  Ctrl-C ends it in order."""
    if contract is None or bootstrap is None or run is not None:
        raise click.UsageError("--watch needs --contract FILE and --bootstrap HOST:PORT alone")
    options = [name for name, value in more.items() if value is True]
    for name, value in more.items():
        if value is not None and not isinstance(value, bool):
            options += [name, str(value)]
    folder = (state or Path(f"{contract}.watch")).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        spark = spark_submit.find()
        connector = spark_submit.connector_arguments(lambda line: click.echo(line, err=True))
    except (OSError, spark_submit.SparkMissing) as error:
        click.echo(f"highwater: {error}", err=True)
        return 3
    command = [str(spark.home / "bin" / "spark-submit"), "--master", master, *connector]
    command += ["--conf", "spark.ui.enabled=false"]
    command += ["--driver-java-options", "-XX:TieredStopAtLevel=1"]
    command += [str(spark_folder() / "contract.py"), str(contract), "--watch", *options]
    command += ["--bootstrap", bootstrap, "--state", str(folder)]
    if command_config is not None:
        command += ["--command-config", str(command_config)]
    log = folder / "watch.log"
    log.unlink(missing_ok=True)
    try:
        child = Child("watch", command, output=log, cwd=Path.cwd(), env=spark.environment())
    except StartError as error:
        click.echo(f"highwater: {error}", err=True)
        return 3
    try:
        return _passed_on(child, log)
    except KeyboardInterrupt:
        (folder / "stop").touch()
        code = child.wait(END_S)
        return 3 if code is None else code
    finally:
        spark_submit.end(child)


def _passed_on(child: Child, log: Path) -> int:
    with log.open(encoding="utf-8", errors="replace") as said:
        code, torn = None, ""
        while code is None:
            code = child.wait(0.1)
            *lines, torn = (torn + said.read()).split("\n")
            for line in lines:
                if SAID.match(line):
                    click.echo(line)
    return code
