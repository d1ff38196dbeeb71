"""`highwater up`, `down` and `status`: a cluster to use, on fixed ports, that keeps its data.

`up` is itself the agent (`highwater.agent`): it stays in the foreground, and Ctrl-C stops the
cluster in order.  `--detach` starts the same agent in the background and waits until the cluster
serves.  `up` for a cluster that runs mends it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from highwater.cli.error_lines import clear_errors, complain
from highwater.cli.places import OutputFile, OutputFolder
from highwater.cli.properties import named_values
from highwater.cli.scram_option import OPTION, pipe_of, scram_texts

F = TypeVar("F", bound=Callable[..., Any])
FIRST_PORT = 9092
LAST_PORT = 65535
ZOOKEEPER_PORT = 2181
"""ZooKeeper's port for the cluster on FIRST_PORT, where it is free."""
_COMPOSE_MISSING = (
    "--runtime compose runs from a clone of the project: `docker compose up --wait` there"
)


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "highwater" / "cluster"


def _dir_option(kind: click.Path) -> Callable[[F], F]:
    return click.option(
        "--dir",
        "folder",
        type=kind,
        default=None,
        help="Where the cluster's data, logs and state are.  "
        "[default: ~/.local/state/highwater/cluster]",
    )


dir_option = _dir_option(click.Path(path_type=Path, file_okay=False))


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of `up`."""

    brokers: int
    port: int
    profile: str
    program: str
    properties: dict[str, str]
    folder: Path
    control: int
    control_host: str
    proxies: bool
    security: str
    scram: tuple[str, ...] = field(repr=False)

    def options(self) -> list[str]:
        plain = ("brokers", "port", "profile", "program", "control")
        words = [f"--{name}={getattr(self, name)}" for name in plain]
        words.append(f"--control-host={self.control_host}")
        words.append("--proxies" if self.proxies else "--no-proxies")
        words += ["--secure"] * (self.security != "plaintext")
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
@click.option(
    "--port",
    default=FIRST_PORT,
    show_default=True,
    type=click.IntRange(1, LAST_PORT),
    help="The first broker's port.",
)
@click.option(
    "--profile",
    type=click.Choice(["test", "kafka"]),
    default="test",
    show_default=True,
    help="`test`: quick failover; `kafka`: Apache Kafka's defaults.",
)
@click.option(
    "--program",
    default="highwater",
    show_default=True,
    help="What runs as brokers: `apache` fetches Apache Kafka 3.9, `apache:VERSION` another"
    " release, such as apache:4.2.0 (docs/targets.md).",
)
@click.option(
    "--set",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="A broker property, as in server.properties; may be given more than once.",
)
@click.option(
    "--control",
    default=0,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The control API's port (docs/control.md).  [default: any]",
)
@click.option(
    "--control-host",
    default="127.0.0.1",
    show_default=True,
    help="Where the control API listens.  Beyond loopback each call has to bring a token:"
    " HIGHWATER_CONTROL_TOKEN, or one that is made; the folder's file control-token has it.",
)
@click.option(
    "--proxies/--no-proxies",
    default=True,
    help="Whether links go through proxies, so that they can be cut and messages held.  Without"
    " them clients are faster.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, logins and access rules on the clients' ports; makes certificates, users and the"
    " files of their clients (docs/security.md).",
)
@click.option(
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[...]",
    callback=scram_texts,
    help="A user of SCRAM, there before the first broker starts, as kafka-storage has it:"
    " 'SCRAM-SHA-256=[name=carol,password=...]'; may be given more than once.  @FILE, or the"
    " variable HIGHWATER_ADD_SCRAM, has one a line.",
)
@_dir_option(OutputFolder())
def up(
    brokers: int,
    runtime: str,
    detach: bool,
    port: int,
    profile: str,
    program: str,
    properties: dict[str, str],
    control: int,
    control_host: str,
    proxies: bool,
    secure: bool,
    scram: tuple[str, ...],
    folder: Path | None,
) -> None:
    """Start a cluster: ZooKeeper and brokers on 127.0.0.1:9092, 9093, 9094.

    For a cluster that runs already: end its faults and start its members that are down.

    \b
    Examples:
      highwater up                  until Ctrl-C
      highwater up --detach         and later `highwater down`
      highwater up --control 9990   and `curl 127.0.0.1:9990/v1/status`
      highwater up --control 9990 --control-host 0.0.0.0
      highwater up --secure         and `kcat -L -F …/secure/alice.conf`
      highwater up --secure --add-scram 'SCRAM-SHA-512=[name=carol,password=...]'
      highwater up --brokers 1 --set num.partitions=4 --set min.insync.replicas=1
    """
    if port + brokers - 1 > LAST_PORT:
        highest = LAST_PORT - brokers + 1
        raise click.UsageError(f"--port {port}: {brokers} brokers need one of {highest} or less")
    folder = (folder or default_folder()).absolute()
    wish = Wish(
        brokers,
        port,
        profile,
        program,
        properties,
        folder,
        control,
        control_host,
        proxies,
        "sasl_ssl" if secure else "plaintext",
        scram,
    )
    if runtime == "compose":
        if secure:
            raise click.UsageError("--secure is for processes")
        if scram:
            raise click.UsageError("--add-scram is for processes")
        if properties:
            raise click.UsageError(
                "--set is for processes: in compose.yaml, properties are KAFKA_*"
            )
        _up_compose(detach)
    elif _mended(folder):
        return
    elif detach:
        _up_detached(wish)
    else:
        _up_here(wish)


def _up_compose(detach: bool) -> None:
    with clear_errors():
        from highwater.cluster.compose_cluster import compose_up

        compose_up(detach)


def _mended(folder: Path) -> bool:
    """Whether a cluster runs in the folder that was broken, and is whole now."""
    from highwater.agent.client import Control, ControlError
    from highwater.agent.control_token import token_of

    url = control_url(folder)
    if url is None:
        return False
    try:
        control = Control(url, token_of(folder))
        status = control.status()
        amiss = [
            f"{m} was {of['state']}" for m, of in status["members"].items() if of["state"] != "up"
        ]
        amiss += [f"{fault['name']} {fault['target']} was on" for fault in status["faults"]]
        if not amiss:
            return False
        began = time.monotonic()
        control.mend()
    except ControlError as error:
        raise click.ClickException(f"the cluster in {folder}: {error.message}") from None
    took = time.monotonic() - began
    click.echo(f"the cluster in {folder} is whole after {took:.1f} s: {'; '.join(amiss)}")
    return True


def _up_here(wish: Wish) -> None:
    import trio

    from highwater.agent.control_token import VARIABLE, BadToken, keep_token, known_token
    from highwater.agent.routes import answer
    from highwater.agent.settings import AgentSettings
    from highwater.agent.supervisor import Agent, agent, serve
    from highwater.kafka.config.unknown import unknown_properties

    try:
        token = known_token(wish.folder, wish.control_host, os.environ.pop(VARIABLE, ""))
    except BadToken as error:
        raise click.ClickException(f"{VARIABLE}: {error}") from None
    settings = AgentSettings(
        wish.folder,
        brokers=wish.brokers,
        profile=wish.profile,
        program=wish.program,
        properties=wish.properties,
        proxies=wish.proxies,
        security=wish.security,
        scram=wish.scram,
        quick_end=False,
        external_ports=tuple(range(wish.port, wish.port + wish.brokers)),
        # any other cluster has its own: two that start at once would both find 2181 free
        zookeeper_port=ZOOKEEPER_PORT if wish.port == FIRST_PORT else 0,
        control_port=wish.control,
        control_host=wish.control_host,
        control_token=token,
    )
    for line in unknown_properties(wish.properties):
        complain(line)

    def ready(made: Agent) -> None:
        keep_token(wish.folder, made.token)
        _print_up(made)  # before state.json says so: then --detach passes on the printed lines
        made.events.listener = lambda event: click.echo(
            f"{event['at'][11:19]} {event['text']}", err=True
        )

    with clear_errors():
        trio.run(serve, agent(settings, answer), ready)
        click.echo("stopped")


def _print_up(made: Any) -> None:
    cluster = made.cluster
    beside = " and ZooKeeper" if cluster.zookeeper_connect else ""
    click.echo(f"{len(cluster.brokers)} brokers{beside} serve after {made.seconds:.1f} s")
    security = made.settings.security
    if security == "plaintext":
        click.echo(f"bootstrap servers  {cluster.bootstrap}")
    else:
        files = cluster.folder / "secure"
        click.echo(f"bootstrap servers  {cluster.bootstrap} ({security.upper()})")
        click.echo(f"clients' files     {files}/admin.properties, .conf, .json; alice, bob")
        click.echo(f"without security   {cluster.inner_bootstrap} (for the harness, a super user)")
    click.echo(f"ZooKeeper          {cluster.zookeeper_connect or 'none: KRaft mode'}")
    addresses = [a for n in cluster.brokers if (a := cluster.metrics_address(n)) is not None]
    if addresses:
        click.echo(f"metrics, traces    {', '.join(addresses)} (/metrics, /trace, /readyz)")
    click.echo(f"control API        {made.control}/v1/status")
    if made.token:
        click.echo(f"its token          {cluster.folder}/control-token")
    click.echo(f"data               {cluster.folder}/broker-N/data")
    click.echo(f"logs               {cluster.folder}/broker-N/output.log")
    sys.stdout.flush()


def _up_detached(wish: Wish) -> None:
    """Runs the same command in the background, with its output in the folder."""
    folder = wish.folder
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "supervisor.log"
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "up", *wish.options()]
    kept: list[int] = []
    if wish.scram:
        kept.append(pipe_of(wish.scram))
        command.append(f"{OPTION}=@/dev/fd/{kept[0]}")
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=kept,
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


def control_url(folder: Path) -> str | None:
    """The control API of the cluster that runs in a folder; None where none runs."""
    from highwater.child_processes import Pid

    state = read_state(folder)
    if not state.get("ready") or not Pid.from_json(state["supervisor"]).alive():
        return None
    url: str | None = state.get("control")
    return url


@click.command()
@click.option("--delete", is_flag=True, help="Also delete the cluster's data and logs.")
@click.option("--runtime", type=click.Choice(["process", "compose"]), default="process")
@dir_option
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
@click.option(
    "--json",
    "json_file",
    type=OutputFile(allow_dash=True),
    help="Write it there as JSON; - prints it instead of the table.",
)
@dir_option
def status(json_file: Path | None, folder: Path | None) -> None:
    """Show which members run, and where the brokers listen; exit code 1 where not all do.

    \b
    Example:
      highwater status --json - | jq .bootstrap
    """
    from highwater.child_processes import Pid

    folder = (folder or default_folder()).absolute()
    state = read_state(folder)
    members: dict[str, dict[str, Any]] = {}
    own: dict[str, int] = {}  # a proxy listens, even for a broker that is down
    for number, ports in state.get("ports", {}).items():
        address = state.get("metrics", {}).get(number)
        port = ports["advertised"]["EXTERNAL"]
        members[f"broker-{number}"] = {"port": port, "metrics": address}
        own[f"broker-{number}"] = ports["bound"]["EXTERNAL"]
    if state.get("zookeeper"):  # none in KRaft mode
        members = {"zookeeper": {"port": state["zookeeper_port"]}, **members}
    for name, member in members.items():
        raw = state["processes"].get(name)
        pid = Pid.from_json(raw) if raw else None
        member["pid"] = pid.pid if pid is not None and pid.alive() else None
        # the kernel still takes connections for a process that stands still
        member["paused"] = pid is not None and pid.stopped()
        serves = member["pid"] is not None and not member["paused"]
        member["listening"] = serves and listens(own.get(name, member["port"]))
    if json_file is not None:
        found = {"folder": str(folder), "bootstrap": state.get("bootstrap"), "members": members}
        with click.open_file(str(json_file), "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    quiet = str(json_file) == "-"
    if not members:
        click.echo(f"no cluster in {folder}", err=quiet)
        raise SystemExit(1)
    if not quiet:
        _print_members(folder, members)
    if not all(member["listening"] for member in members.values()):
        raise SystemExit(1)


def _print_members(folder: Path, members: dict[str, dict[str, Any]]) -> None:
    for name, member in members.items():
        word = "serves" if member["listening"] else "runs" if member["pid"] else "is down"
        word = "is paused" if member["paused"] else word
        pid_text = f"pid {member['pid']}" if member["pid"] else ""
        metrics = f"metrics {member['metrics']}" if member.get("metrics") else ""
        line = f"{name:<12}{word:<10}127.0.0.1:{member['port']:<8}{pid_text:<12}{metrics}"
        click.echo(line.rstrip())
    click.echo(f"folder      {folder}")


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
