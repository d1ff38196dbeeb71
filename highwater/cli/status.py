"""`highwater status`: which members of a cluster run, where clients find its brokers, and what is
wrong with it."""

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
from highwater.cli.error_lines import complain
from highwater.cli.fault import fault_line
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
    """Show which members run, where clients find the brokers, which one is the controller, the
    faults that are on, and partitions without a leader; exit code 1 where a member does not serve.

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
        # on a secured cluster EXTERNAL is the harness's own, whose every client is a super user
        listener = "SECURE" if "SECURE" in ports["advertised"] else "EXTERNAL"
        members[f"broker-{number}"] = {"port": ports["advertised"][listener], "metrics": address}
        own[f"broker-{number}"] = ports["bound"][listener]
    for name, at in state.get("controllers", {}).items():  # those that are no brokers
        members[name], own[name] = {"port": at["advertised"], "metrics": None}, at["bound"]
    kind = state.get("zookeeper_kind", "")
    if kind in ("java", "embedded"):  # the others are no members
        members = {"zookeeper": {"port": state["zookeeper_port"], "kind": kind}, **members}
    for name, member in members.items():
        raw = state["processes"].get(name)
        pid = Pid.from_json(raw) if raw else None
        member["pid"] = pid.pid if pid is not None and pid.alive() else None
        # the kernel still takes connections for a process that stands still
        member["paused"] = pid is not None and pid.stopped()
        serves = member["pid"] is not None and not member["paused"]
        member["listening"] = serves and listens(own.get(name, member["port"]))
    told = _ask(folder)
    for name, member in members.items():
        if told is not None and state["runtime"] == "compose":  # the engine has the processes
            member["paused"] = told["members"][name]["state"] == "paused"
            member["listening"] = told["members"][name]["state"] == "up"
    found = {"folder": str(folder), "bootstrap": state.get("bootstrap"), "members": members}
    found["zookeeper"] = {"connect": state.get("zookeeper", ""), "kind": kind}
    if told is not None:
        found |= {name: told[name] for name in ("controller", "faults", "leaderless")}
    if json_file is not None:
        with click.open_file(str(json_file), "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    quiet = str(json_file) == "-"
    if not members:
        click.echo(f"no cluster in {folder}", err=quiet)
        raise SystemExit(1)
    if not quiet:
        _print(found)
    if not all(member["listening"] for member in members.values()):
        raise SystemExit(1)


def _ask(folder: Path) -> dict[str, Any] | None:
    """What the control API says, with the partitions that no running broker leads; None where none
    answers, as while the cluster starts or ends: what its processes show is told all the same."""
    from highwater.agent.client import Control, ControlError
    from highwater.agent.control_token import token_of

    url = control_url(folder)
    if url is None:
        return None
    control = Control(url, token_of(folder))
    try:
        told = control.status()
        members = {name: member["state"] for name, member in told["members"].items()}
        told["leaderless"] = [
            f"{topic['name']}-{partition['partition']}"
            for topic in control.topics()
            for partition in topic["partitions"]
            if members.get(f"broker-{partition['leader']}", "gone") != "up"
        ]
    except ControlError as error:
        complain(f"the control API of the cluster in {folder}: {error.message}")
        return None
    return told


def _print(found: dict[str, Any]) -> None:
    controller = found.get("controller")
    for name, member in found["members"].items():
        word = "serves" if member["listening"] else "runs" if member["pid"] else "is down"
        word = "is paused" if member["paused"] else word
        pid_text = f"pid {member['pid']}" if member["pid"] else ""
        metrics = f"metrics {member['metrics']}" if member.get("metrics") else ""
        line = f"{name:<12}{word:<10}127.0.0.1:{member['port']:<8}{pid_text:<12}{metrics:<26}"
        line += member.get("kind", "")
        line += "controller" if name == f"broker-{controller}" else ""
        click.echo(line.rstrip())
    if leaderless := found.get("leaderless"):
        more = f", and {len(leaderless) - 10} more" if len(leaderless) > 10 else ""
        click.echo(f"no leader   {', '.join(leaderless[:10])}{more}")
    for fired in found.get("faults", ()):
        click.echo(f"fault {fired['id']:<6}{fault_line(fired)}")
    if found["zookeeper"]["kind"] == "elsewhere":
        click.echo(f"ZooKeeper   {found['zookeeper']['connect']}")
    click.echo(f"folder      {found['folder']}")
