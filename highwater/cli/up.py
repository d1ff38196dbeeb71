"""`highwater up`, `down` and `status`: a cluster to use, on fixed ports, that keeps its data.

`up` is itself the supervisor: it stays in the foreground, and Ctrl-C stops the cluster in order.
`--detach` starts the same supervisor in the background and waits until the cluster serves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from highwater.cli.error_lines import clear_errors
from highwater.cli.properties import named_values

FIRST_PORT = 9092
ZOOKEEPER_PORT = 2181
"""ZooKeeper's port for the cluster on FIRST_PORT, where it is free."""
_COMPOSE_MISSING = (
    "--runtime compose runs from a clone of the project: `docker compose up --wait` there"
)


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "highwater" / "cluster"


_dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where the cluster's data, logs and state are.  [default: ~/.local/state/highwater]",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of `up`."""

    brokers: int
    port: int
    profile: str
    program: str
    properties: dict[str, str]
    folder: Path

    def options(self) -> list[str]:
        plain = ("brokers", "port", "profile", "program")
        words = [f"--{name}={getattr(self, name)}" for name in plain]
        words += [f"--set={name}={value}" for name, value in self.properties.items()]
        return [*words, f"--dir={self.folder}"]


@click.command()
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(1, 9))
@click.option(
    "--runtime",
    type=click.Choice(["auto", "process", "compose"]),
    default="auto",
    show_default=True,
    help="Processes on this machine, or containers; auto is process.",
)
@click.option("--detach", is_flag=True, help="Return as soon as the cluster serves.")
@click.option("--port", default=FIRST_PORT, show_default=True, help="The first broker's port.")
@click.option(
    "--profile",
    type=click.Choice(["test", "kafka"]),
    default="test",
    show_default=True,
    help="`test`: quick failover; `kafka`: Apache Kafka's defaults.",
)
@click.option(
    "--program",
    type=click.Choice(["highwater", "apache"]),
    default="highwater",
    show_default=True,
    help="What runs as brokers: `apache` fetches Apache Kafka, to compare with.",
)
@click.option(
    "--set",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="A broker property, as in server.properties; may be given more than once.",
)
@_dir_option
def up(
    brokers: int,
    runtime: str,
    detach: bool,
    port: int,
    profile: str,
    program: str,
    properties: dict[str, str],
    folder: Path | None,
) -> None:
    """Start a cluster: ZooKeeper and brokers on 127.0.0.1:9092, 9093, 9094.

    \b
    Examples:
      highwater up                  until Ctrl-C
      highwater up --detach         and later `highwater down`
      highwater up --brokers 1 --set num.partitions=4 --set min.insync.replicas=1
    """
    folder = (folder or default_folder()).absolute()
    wish = Wish(brokers, port, profile, program, properties, folder)
    if runtime == "compose":
        if properties:
            raise click.UsageError(
                "--set is for processes: in compose.yaml, properties are KAFKA_*"
            )
        _up_compose(detach)
    elif detach:
        _up_detached(wish)
    else:
        _up_here(wish)


def _up_compose(detach: bool) -> None:
    with clear_errors():
        from highwater.cluster.compose_cluster import compose_up

        compose_up(detach)


def _up_here(wish: Wish) -> None:
    import trio

    from highwater.cluster import apache
    from highwater.cluster.process_cluster import Settings, process_cluster
    from highwater.cluster.programs import Highwater

    async def supervise() -> None:
        settings = Settings(
            wish.folder,
            brokers=wish.brokers,
            profile=wish.profile,
            external_ports=tuple(range(wish.port, wish.port + wish.brokers)),
            # any other cluster has its own: two that start at once would both find 2181 free
            zookeeper_port=ZOOKEEPER_PORT if wish.port == FIRST_PORT else 0,
            program=apache.program() if wish.program == "apache" else Highwater(),
            internal_topics=True,
            properties=wish.properties,
        )
        started = time.monotonic()
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:

                async def watch_signals() -> None:
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

                nursery.start_soon(watch_signals)
                async with process_cluster(settings) as cluster:
                    _print_up(cluster, time.monotonic() - started)
                    cluster.write_state(ready=True)  # now --detach passes on the printed lines
                    told: set[str] = set()
                    while True:
                        await trio.sleep(0.5)
                        for line in cluster.unexpected_ends():
                            if line not in told:
                                told.add(line)
                                click.echo(f"highwater: {line}", err=True)

    with clear_errors():
        trio.run(supervise)
        click.echo("stopped")


def _print_up(cluster: Any, seconds: float) -> None:
    click.echo(f"{len(cluster.brokers)} brokers and ZooKeeper serve after {seconds:.1f} s")
    click.echo(f"bootstrap servers  {cluster.bootstrap}")
    click.echo(f"ZooKeeper          {cluster.zookeeper_connect}")
    addresses = [a for n in cluster.brokers if (a := cluster.metrics_address(n)) is not None]
    if addresses:
        click.echo(f"metrics, traces    {', '.join(addresses)} (/metrics, /trace, /readyz)")
    click.echo(f"data               {cluster.folder}/broker-N/data")
    click.echo(f"logs               {cluster.folder}/broker-N/output.log")
    sys.stdout.flush()


def _up_detached(wish: Wish) -> None:
    """Runs the same command in the background, with its output in the folder."""
    folder = wish.folder
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "supervisor.log"
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "up", *wish.options()]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while True:
        state = read_state(folder)
        mine = state and state["supervisor"]["pid"] == process.pid
        if mine and state.get("ready"):
            click.echo(output.read_text(), nl=False)
            return
        if process.poll() is not None:
            click.echo(output.read_text(), nl=False, err=True)
            raise SystemExit(process.returncode or 1)
        time.sleep(0.03)


def read_state(folder: Path) -> dict[str, Any]:
    """state.json of a cluster's folder; empty where there is none."""
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    return state


@click.command()
@click.option("--delete", is_flag=True, help="Also delete the cluster's data and logs.")
@click.option("--runtime", type=click.Choice(["process", "compose"]), default="process")
@_dir_option
def down(delete: bool, runtime: str, folder: Path | None) -> None:
    """Stop the cluster that `up` started; its data stays, unless --delete is given.

    \b
    Example:
      highwater down
    """
    if runtime == "compose":
        with clear_errors():
            from highwater.cluster.compose_cluster import compose_down

            compose_down(delete)
        return
    from highwater.child_processes import Pid, kill_listed

    folder = (folder or default_folder()).absolute()
    state = read_state(folder)
    if not state:
        click.echo(f"no cluster in {folder}")
        return
    supervisor = Pid.from_json(state["supervisor"])
    was_running = supervisor.alive()
    supervisor.end(grace_s=30)
    kill_listed(folder / "state.json")
    click.echo("stopped" if was_running else f"no cluster was running in {folder}")
    if delete:
        import shutil

        shutil.rmtree(folder)
        click.echo(f"deleted {folder}")


@click.command()
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write it here as JSON.")
@_dir_option
def status(json_file: Path | None, folder: Path | None) -> None:
    """Show which members run, and where the brokers listen; exit code 1 where not all do.

    \b
    Example:
      highwater status --json status.json
    """
    from highwater.child_processes import Pid

    folder = (folder or default_folder()).absolute()
    state = read_state(folder)
    members: dict[str, dict[str, Any]] = {}
    for number, ports in state.get("ports", {}).items():
        address = state.get("metrics", {}).get(number)
        members[f"broker-{number}"] = {"port": ports["bound"]["EXTERNAL"], "metrics": address}
    if state:
        members = {"zookeeper": {"port": state["zookeeper_port"]}, **members}
    for name, member in members.items():
        raw = state["processes"].get(name)
        pid = Pid.from_json(raw) if raw else None
        member["pid"] = pid.pid if pid is not None and pid.alive() else None
        member["listening"] = member["pid"] is not None and listens(member["port"])
    if json_file is not None:
        found = {"folder": str(folder), "bootstrap": state.get("bootstrap"), "members": members}
        json_file.write_text(json.dumps(found, indent=1) + "\n")
    if not members:
        click.echo(f"no cluster in {folder}")
        raise SystemExit(1)
    for name, member in members.items():
        word = "serves" if member["listening"] else "runs" if member["pid"] else "is down"
        pid_text = f"pid {member['pid']}" if member["pid"] else ""
        metrics = f"metrics {member['metrics']}" if member.get("metrics") else ""
        line = f"{name:<12}{word:<10}127.0.0.1:{member['port']:<8}{pid_text:<12}{metrics}"
        click.echo(line.rstrip())
    click.echo(f"folder      {folder}")
    if not all(member["listening"] for member in members.values()):
        raise SystemExit(1)


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
