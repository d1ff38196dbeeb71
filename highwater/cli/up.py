"""`highwater up` and `down`: a cluster to use, on fixed ports, that keeps its data.

`up` is itself the agent (`highwater.agent`): it stays in the foreground, and Ctrl-C stops the
cluster in order.  `--detach` starts the same agent in the background and waits until the cluster
serves.  `up` for a cluster that runs mends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from highwater.cli.cluster_folder import (
    control_url,
    default_folder,
    dir_option,
    folder_option,
    read_state,
)
from highwater.cli.error_lines import clear_errors, complain
from highwater.cli.option_values import named_values, zookeeper_option
from highwater.cli.places import OutputFolder
from highwater.cli.scram_option import OPTION, pipe_of, scram_texts

FIRST_PORT = 9092
LAST_PORT = 65535
ZOOKEEPER_PORT = 2181
"""ZooKeeper's port for the cluster on FIRST_PORT, where it is free."""


@dataclass(frozen=True, slots=True)
class UpOptions:
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
    runtime: str = "process"
    zookeeper: str = ""
    zookeeper_sync: bool = False

    def options(self) -> list[str]:
        plain = ("brokers", "runtime", "port", "profile", "program", "control")
        words = [f"--{name}={getattr(self, name)}" for name in plain]
        words.append(f"--control-host={self.control_host}")
        words += [f"--zookeeper={self.zookeeper}"] * bool(self.zookeeper)
        words += ["--zookeeper-sync"] * self.zookeeper_sync
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
    "--zookeeper",
    metavar="WHICH",
    callback=zookeeper_option,
    help="`embedded`: Highwater's, in Python; `java`: ZooKeeper's own server, which needs Java;"
    " HOST:PORT[,...][/CHROOT]: one that runs.  [default: the one that the folder had, else"
    " embedded]",
)
@click.option(
    "--zookeeper-sync",
    is_flag=True,
    help="ZooKeeper answers a write when the disk has it, and so keeps it over a power loss.",
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
    help="Whether links can go through proxies, to be cut and messages to be held.  Those of"
    " Highwater's own brokers do from the first such fault on, on Linux and without --secure; all"
    " others always, and clients are faster without.",
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
@folder_option(OutputFolder())
def up(
    brokers: int,
    runtime: str,
    detach: bool,
    port: int,
    profile: str,
    program: str,
    zookeeper: str,
    zookeeper_sync: bool,
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
      highwater up --zookeeper localhost:2181/mine
      highwater up --brokers 1 --set num.partitions=4 --set min.insync.replicas=1
    """
    if port + brokers - 1 > LAST_PORT:
        highest = LAST_PORT - brokers + 1
        raise click.UsageError(f"--port {port}: {brokers} brokers need one of {highest} or less")
    folder = (folder or default_folder()).absolute()
    options = UpOptions(
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
        "compose" if runtime == "compose" else "process",
        zookeeper,
        zookeeper_sync,
    )
    if runtime == "compose":
        _require_processes_for(options)
    if _mended(folder):
        return
    if runtime == "compose" and (detach or sys.stderr.isatty()):
        click.echo("builds the brokers' image where it changed, and starts containers", err=True)
    if detach:
        _up_detached(options)
    else:
        _up_here(options)


def _require_processes_for(options: UpOptions) -> None:
    """Raises UsageError for what containers cannot be told."""
    beyond = {
        "--brokers": options.brokers != 3,
        "--program": options.program != "highwater",
        "--no-proxies": not options.proxies,
        "--zookeeper": bool(options.zookeeper),
        "--zookeeper-sync": options.zookeeper_sync,
        "--secure": options.security != "plaintext",
        "--add-scram": bool(options.scram),
    }
    if asked := [option for option, given in beyond.items() if given]:
        raise click.UsageError(
            f"--runtime compose has three brokers of Highwater's, behind proxies and without"
            f" security: leave {asked[0]} out, or use --runtime process"
        )


def _mended(folder: Path) -> bool:
    """Whether a cluster runs in the folder that was broken, and is whole now."""
    url = control_url(folder)
    if url is None:
        return False
    from highwater.agent.client import Control, ControlError
    from highwater.agent.control_token import token_of

    try:
        control = Control(url, token_of(folder))
        status = control.status()
        amiss = [
            f"{m} was {of['state']}" for m, of in status["members"].items() if of["state"] != "up"
        ]
        amiss += [f"{fault['name']} {fault['target']} was on" for fault in status["faults"]]
        if not amiss:
            return False
        click.echo(f"mends the cluster in {folder}: {'; '.join(amiss)}")
        began = time.monotonic()
        control.mend()
    except ControlError as error:
        raise click.ClickException(f"the cluster in {folder}: {error.message}") from None
    took = time.monotonic() - began
    click.echo(f"it is whole after {took:.1f} s")
    return True


def _up_here(options: UpOptions) -> None:
    from highwater.cluster.processes import forked_members

    forked_members.begin(options.program, options.runtime, options.folder, options.profile)
    from highwater.kafka.wire.codecs_only import load_codecs_only

    load_codecs_only()
    import trio

    from highwater.agent.agent_settings import AgentSettings
    from highwater.agent.control_token import VARIABLE, BadToken, keep_token, known_token
    from highwater.agent.routes import answer
    from highwater.agent.supervisor import Agent, agent, serve

    try:
        token = known_token(options.folder, options.control_host, os.environ.pop(VARIABLE, ""))
    except BadToken as error:
        raise click.ClickException(f"{VARIABLE}: {error}") from None
    settings = AgentSettings(
        options.folder,
        brokers=options.brokers,
        profile=options.profile,
        program=options.program,
        properties=options.properties,
        proxies=options.proxies,
        security=options.security,
        scram=options.scram,
        runtime=options.runtime,
        zookeeper=options.zookeeper,
        zookeeper_sync=options.zookeeper_sync,
        quick_end=False,
        external_ports=tuple(range(options.port, options.port + options.brokers)),
        # any other cluster has its own: two that start at once would both find 2181 free
        zookeeper_port=ZOOKEEPER_PORT if options.port == FIRST_PORT else 0,
        control_port=options.control,
        control_host=options.control_host,
        control_token=token,
    )
    for line in settings.unknown_properties():
        complain(line)
    check_properties(options.brokers, options.security, options.properties)

    def ready(made: Agent) -> None:
        keep_token(options.folder, made.token)
        _print_up(made)  # before state.json says so: then --detach passes on the printed lines
        made.events.listener = lambda event: click.echo(
            f"{event['at'][11:19]} {event['text']}", err=True
        )

    with clear_errors():
        trio.run(serve, agent(settings, answer), ready)
        click.echo("stopped")


def check_properties(brokers: int, security: str, properties: Mapping[str, str]) -> None:
    """Says what the brokers would take, and what then works for nobody."""
    given = {"super.users": "", "min.insync.replicas": "1", **properties}
    if security == "plaintext" and given.get("authorizer.class.name"):
        open_to_all = given.get("allow.everyone.if.no.acl.found", "false").lower() == "true"
        if "User:ANONYMOUS" not in given["super.users"].split(";") and not open_to_all:
            raise click.ClickException(
                "with an authorizer the brokers need a right to each other's requests: add"
                " User:ANONYMOUS, as whom they connect, to super.users; or use --secure"
            )
    least = given["min.insync.replicas"]
    if least.isdecimal() and int(least) > brokers:
        complain(
            f"min.insync.replicas={least}, but there are {brokers} brokers: no write with"
            " acks=all will succeed"
        )


def _print_up(made: Any) -> None:
    cluster = made.cluster
    beside = " and ZooKeeper" if cluster.zookeeper_kind in ("java", "embedded") else ""
    count = len(cluster.brokers)
    brokers = "broker" if count == 1 else "brokers"
    click.echo(f"{count} {brokers}{beside} serve after {made.seconds:.1f} s")
    security = made.settings.security
    if security == "plaintext":
        click.echo(f"bootstrap servers  {cluster.bootstrap}")
    else:
        files = cluster.folder / "secure"
        click.echo(f"bootstrap servers  {cluster.bootstrap} ({security.upper()})")
        click.echo(f"clients' files     {files}/admin.properties, .conf, .json; alice, bob")
        click.echo(f"without security   {cluster.inner_bootstrap} (for the harness, a super user)")
    which = f" ({cluster.zookeeper_kind})" if cluster.zookeeper_connect else "none: KRaft mode"
    click.echo(f"ZooKeeper          {cluster.zookeeper_connect}{which}")
    addresses = [a for n in cluster.brokers if (a := cluster.metrics_address(n)) is not None]
    if addresses:
        click.echo(f"metrics, traces    {', '.join(addresses)} (/metrics, /trace, /readyz)")
    click.echo(f"control API        {made.control}/v1/status")
    if made.token:
        click.echo(f"its token          {cluster.folder}/control-token")
    click.echo(f"data               {cluster.folder}/broker-N/data")
    click.echo(f"logs               {cluster.where_logs_are}")
    sys.stdout.flush()


def _up_detached(options: UpOptions) -> None:
    """Runs the same command in the background, with its output in the folder."""
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "supervisor.log"
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "up", *options.options()]
    kept: list[int] = []
    if options.scram:
        kept.append(pipe_of(options.scram))
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
        time.sleep(0.01)


@click.command()
@click.option("--delete", is_flag=True, help="Also delete the cluster's data and logs.")
@dir_option
def down(delete: bool, folder: Path | None) -> None:
    """Stop the cluster that `up` started; its data stays, unless --delete is given.

    \b
    Example:
      highwater down
    """
    from highwater.child_processes import Pid, kill_listed

    folder = (folder or default_folder()).absolute()
    state = read_state(folder)
    if not state:
        click.echo(f"no cluster in {folder}")
        return
    supervisor = Pid.from_json(state["supervisor"])
    was_running = supervisor.alive()
    supervisor.end(grace_s=60 if state["runtime"] == "compose" else 30)
    kill_listed(folder / "state.json")
    click.echo("stopped" if was_running else f"no cluster was running in {folder}")
    if delete:
        import shutil

        if state["runtime"] == "compose":
            from highwater.cluster.compose.compose_cluster import delete_volumes

            delete_volumes(folder)
        shutil.rmtree(folder)
        click.echo(f"deleted {folder}")
        if state.get("zookeeper_kind") == "elsewhere":
            click.echo(f"its znodes stay in the ZooKeeper at {state['zookeeper']}")
