"""Where `highwater topic` finds its cluster, and how it answers.

It is the cluster of `up`, as its administrator where it is secured, or any other by --bootstrap.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from highwater.cli.cluster_folder import default_folder, dir_option, read_state
from highwater.cli.error_lines import clear_errors, complain

if TYPE_CHECKING:
    from highwater.kafka.client.metadata import Cluster


@dataclass(frozen=True, slots=True)
class Where:
    """The options of every command."""

    bootstrap: str | None
    config: Path | None
    folder: Path | None
    as_json: bool

    def say(self, line: str, **values: Any) -> None:
        click.echo(json.dumps(values) if self.as_json else line)

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Cluster]:
        """A client of the cluster; raises ClickException where none is named and none runs."""
        from highwater.cluster.client_files import client_settings
        from highwater.cluster.remote.secured_target import network_by, network_of
        from highwater.kafka.client.metadata import Cluster
        from highwater.kafka.security.links import SecuredWorld
        from highwater.world.real import RealWorld

        world: Any = RealWorld()
        bootstrap = self.bootstrap
        if bootstrap is not None:
            if self.config is not None:
                world = SecuredWorld(world, network_of(self.config))
        else:
            folder = (self.folder or default_folder()).absolute()
            state = read_state(folder)
            bootstrap = state.get("bootstrap")
            if not bootstrap:
                raise click.ClickException(
                    f"no cluster runs in {folder}: start one (highwater up --detach),"
                    " or name one by --bootstrap HOST:PORT"
                )
            if any("SECURE" in ports["advertised"] for ports in state.get("ports", {}).values()):
                given = client_settings(folder / "secure", bootstrap, "sasl_ssl", "java")
                world = SecuredWorld(world, network_by(given))
        cluster = Cluster(world, bootstrap, "highwater-topic", connect_timeout_s=5)
        try:
            yield cluster
        finally:
            cluster.close()

    def run(self, work: Callable[[Cluster], Awaitable[None]]) -> None:
        import trio

        async def main() -> None:
            async with self.cluster() as cluster:
                await work(cluster)

        with _clear():
            trio.run(main)


@contextmanager
def _clear() -> Iterator[None]:
    """One line, and exit code 1, for what the cluster refuses and for one that is away."""
    from highwater.kafka.errors import ApiError

    try:
        with clear_errors():
            yield
    except ApiError as error:
        complain(error.detail or str(error))
        raise SystemExit(1) from None
    except OSError as error:
        complain(f"no broker answers: {error}")
        raise SystemExit(1) from None


def _bootstrap(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from highwater.kafka.client.metadata import parse_bootstrap

    try:
        parse_bootstrap(value or "")
    except ValueError as error:
        if value is not None:
            raise click.BadParameter(str(error)) from None
    return value


def where_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `where`, made of the options that all of them have."""

    def wrapped(
        bootstrap: str | None, config: Path | None, folder: Path | None, as_json: bool, **rest: Any
    ) -> None:
        if config is not None and bootstrap is None:
            raise click.UsageError("--config tells how to log in at --bootstrap HOST:PORT: add it")
        command(where=Where(bootstrap, config, folder, as_json), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each."),
        dir_option,
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="How to log in at --bootstrap: a file for --command-config of Kafka's tools.",
        ),
        click.option(
            "--bootstrap",
            metavar="HOST:PORT",
            callback=_bootstrap,
            help="Another cluster than the one that `up` runs.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped
