"""`highwater status`: which members of a cluster run, and where its brokers listen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from highwater.cli.cluster_folder import (
    control_url,
    default_folder,
    dir_option,
    read_state,
)
from highwater.cli.places import OutputFile
from highwater.cluster.ports import listens


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
    for name, at in state.get("controllers", {}).items():  # those that are no brokers
        members[name], own[name] = {"port": at["advertised"], "metrics": None}, at["bound"]
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
    if members and state["runtime"] == "compose":
        _ask_states(folder, members)
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


def _ask_states(folder: Path, members: dict[str, dict[str, Any]]) -> None:
    """Which containers run, from the control API: their processes are the engine's."""
    from highwater.agent.client import Control, ControlError
    from highwater.agent.control_token import token_of

    url = control_url(folder)
    if url is None:
        return
    try:
        told = Control(url, token_of(folder)).status()["members"]
    except ControlError as error:
        raise click.ClickException(f"the cluster in {folder}: {error.message}") from None
    for name, member in members.items():
        member["paused"] = told[name]["state"] == "paused"
        member["listening"] = told[name]["state"] == "up"


def _print_members(folder: Path, members: dict[str, dict[str, Any]]) -> None:
    for name, member in members.items():
        word = "serves" if member["listening"] else "runs" if member["pid"] else "is down"
        word = "is paused" if member["paused"] else word
        pid_text = f"pid {member['pid']}" if member["pid"] else ""
        metrics = f"metrics {member['metrics']}" if member.get("metrics") else ""
        line = f"{name:<12}{word:<10}127.0.0.1:{member['port']:<8}{pid_text:<12}{metrics}"
        click.echo(line.rstrip())
    click.echo(f"folder      {folder}")
