"""The folder of the cluster that `up` keeps, and what its state.json says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "highwater" / "cluster"


def folder_option(kind: click.Path) -> Callable[[F], F]:
    return click.option(
        "--dir",
        "folder",
        type=kind,
        default=None,
        help="Where the cluster's data, logs and state are.  "
        "[default: ~/.local/state/highwater/cluster]",
    )


dir_option = folder_option(click.Path(path_type=Path, file_okay=False))


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
