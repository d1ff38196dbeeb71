"""`highwater`: one command that grows with the project.

Each subcommand lives in a module of its own, which is imported only when it is called: `highwater
--help` and the shell's completion stay fast, and a missing optional part breaks only its own
command.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from highwater.base.install_hint import install_hint
from highwater.cli.error_lines import click_errors
from highwater.kafka.wire.compiled import compiled

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, the text of `highwater --help`)
    "up": ("highwater.cli.up:up", "Start a cluster on 127.0.0.1:9092, 9093, 9094."),
    "down": ("highwater.cli.up:down", "Stop the cluster that `up` started."),
    "status": ("highwater.cli.status:status", "Show the running cluster."),
    "topic": ("highwater.cli.topic:topic", "Create topics; write and read their records."),
    "zookeeper": ("highwater.cli.zookeeper_data:zookeeper", "A cluster's ZooKeeper data."),
    "fault": ("highwater.cli.fault:fault", "Break the running cluster, and mend it."),
    "demo": ("highwater.cli.chaos:demo", "The whole story in two minutes: run, break, verify."),
    "chaos": ("highwater.cli.chaos:chaos", "Run a workload, inject faults, give a verdict."),
    "verify": ("highwater.cli.verify:verify", "Check a run's folder again."),
    "report": ("highwater.cli.report:report", "Write the HTML report of a run's folder."),
    "doctor": ("highwater.cli.doctor:doctor", "What a client's settings do to its records."),
    "sim": ("highwater.cli.sim:sim", "The whole cluster in one process, under virtual time."),
    "trace": ("highwater.cli.trace:trace", "Follow one request through the brokers, live."),
    "docs": ("highwater.cli.docs:docs", "The pages of the documentation, offline."),
    "bench": ("highwater.cli.bench.bench_group:bench", "Measure, against Apache Kafka too."),
}


EXTRAS = {
    # import: the extra that brings it
    "aiokafka": "harness",
    "confluent_kafka": "harness",
    "crc32c": "harness",
    "duckdb": "harness",
    "jinja2": "harness",
    "jwt": "oauth",
    "re2": "re2",
    "rich": "harness",
    "pyspark": "spark",
    "testcontainers": "compose",
}


def _missing(command: str, error: ModuleNotFoundError) -> click.ClickException:
    package = str(error.name).partition(".")[0]
    remedy = install_hint(EXTRAS[package]) if package in EXTRAS else "install it"
    return click.ClickException(f"`highwater {command}` needs {package}: {remedy}")


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command: Any = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name == module:
                problem = f"`highwater {cmd_name}` is not in this build"
                raise click.ClickException(problem) from error
            raise _missing(cmd_name, error) from error
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Some commands import what they need when its turn comes."""
        with click_errors():
            try:
                return super().invoke(ctx)
            except ModuleNotFoundError as error:
                raise _missing(str(ctx.invoked_subcommand), error) from error

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with click_errors():
            return super().make_context(*args, **extra)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    package_name="highwater-kafka",
    prog_name="highwater",
    message="%(prog)s, version %(version)s, "
    + ("compiled modules" if compiled() else "pure Python"),
)
def cli() -> None:
    """A Kafka-compatible cluster that one person can run, break and check.

    \b
    Example:
      highwater up --detach
      kcat -L -b 127.0.0.1:9092
      highwater down
    """


def main(arguments: Sequence[str] | None = None) -> None:
    cli.main(args=list(arguments) if arguments is not None else None, prog_name="highwater")


if __name__ == "__main__":
    main()
