"""`highwater trace`: one request's way, or the opening and closing of connections, live."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import click

from highwater.cli.cluster_folder import control_url, default_folder, read_state
from highwater.cli.error_lines import clear_errors, leaves
from highwater.cluster.ports import listens


@click.command()
@click.option("--connections", is_flag=True, help="Who opens and closes connections, instead.")
@click.option(
    "--api",
    default="Produce",
    show_default=True,
    help="The API whose next request is followed (of Produce: one with acks=all).",
)
@click.option(
    "--send-to",
    "topic",
    metavar="TOPIC",
    default="highwater-trace",
    show_default=True,
    help="Where `trace` writes a record, to follow it.",
)
@click.option("--wait", is_flag=True, help="Send nothing: follow what another client sends.")
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="How long to listen at most.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The cluster of `highwater up --dir`; without one, a cluster is started for this.",
)
def trace(
    connections: bool, api: str, topic: str, wait: bool, seconds: float, folder: Path | None
) -> None:
    """Follow one request through acceptor, queue, handler, log, purgatory, HW and response.

    \b
    Examples:
      highwater trace                     one Produce with acks=all
      highwater trace --connections      until Ctrl-C
      highwater trace --api JoinGroup --wait
    """
    import trio

    from highwater.cluster.faults.scene import KAFKA_APIS
    from highwater.cluster.trace_reader import Wanted

    if api not in KAFKA_APIS:
        near = get_close_matches(api, KAFKA_APIS, 1)
        hint = f"did you mean {near[0]}?" if near else "Produce, Fetch and JoinGroup are some"
        raise click.UsageError(f"--api: no API {api!r}; {hint}")
    sends = not wait and not connections and api == "Produce"
    limit = float("inf") if connections and seconds == 60 else seconds
    wanted = Wanted(api, connections, topic if sends else None, limit)
    with clear_errors(), _until_nobody_reads():
        place = folder or default_folder()
        ports, bootstrap = _running(place)
        program = read_state(place).get("program", "highwater")
        if program != "highwater" and control_url(place) is not None:
            raise click.ClickException(
                f"the cluster in {place} is {program}, which has no traces: stop it"
                " (highwater down), or name another by --dir"
            )
        if ports:
            told = trio.run(_follow, ports, bootstrap, wanted)
        elif folder is not None:
            raise click.ClickException(f"no cluster runs in {folder}: highwater up --dir {folder}")
        else:
            click.echo("no cluster runs: one is started for this", err=True)
            told = trio.run(_follow_own, wanted)
    if not told and not connections:
        raise click.ClickException(f"no {api} request came within {seconds:g} s")


@contextmanager
def _until_nobody_reads() -> Iterator[None]:
    """Ends quietly when the reader of the output ends, as in `highwater trace --connections |
    head`.
    """
    try:
        yield
    except BaseException as error:
        if all(isinstance(leaf, BrokenPipeError) for leaf in leaves(error)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        raise


async def _follow(ports: dict[int, int], bootstrap: str, wanted: object) -> bool:
    from highwater.cluster.trace_reader import Wanted, follow

    assert isinstance(wanted, Wanted)
    what = "connections" if wanted.connections else f"the next {wanted.api} request"
    sent = f", a record to {wanted.topic}" if wanted.topic is not None else ""
    limit = "until Ctrl-C" if wanted.seconds == float("inf") else f"{wanted.seconds:g} s at most"
    click.echo(f"following {what}{sent} at {bootstrap} ({limit})", err=True)
    return await follow(ports, bootstrap, wanted, click.echo)


async def _follow_own(wanted: object) -> bool:
    from highwater.cluster.processes.process_cluster import process_cluster
    from highwater.cluster.processes.process_settings import Settings

    with tempfile.TemporaryDirectory(prefix="highwater-trace-") as work:
        settings = Settings(Path(work) / "cluster", quick_end=True)
        async with process_cluster(settings) as cluster:
            ports = {number: cluster.metrics_port(number) for number in cluster.brokers}
            return await _follow(ports, cluster.bootstrap, wanted)


def _running(folder: Path) -> tuple[dict[int, int], str]:
    """Metrics ports by broker and the bootstrap servers of the cluster in a folder, if it runs."""
    try:
        ports = json.loads((folder / "state.json").read_text())["ports"]
        metrics = {int(number): int(of["metrics"]) for number, of in ports.items()}
        clients = [int(of["advertised"]["EXTERNAL"]) for of in ports.values()]
    except (OSError, ValueError, KeyError, TypeError):
        return {}, ""
    live = {number: port for number, port in metrics.items() if port > 0 and listens(port)}
    return live, ",".join(f"127.0.0.1:{port}" for port in clients)
