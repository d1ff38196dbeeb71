"""The Compose runtime: the same verbs through the Docker engine."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from highwater.chaos.clusters.api import Cluster
from highwater.chaos.clusters.processes import StartError


def compose_file() -> Path:
    """compose.yaml of the clone that this package runs from; StartError where it is not a clone."""
    path = Path(__file__).resolve().parents[3] / "compose.yaml"
    if not path.exists():
        raise StartError("the compose runtime needs a clone of the project (compose.yaml)")
    return path


def engine_answers() -> bool:
    """Whether a Docker engine and Compose are there."""
    if shutil.which("docker") is None:
        return False
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return False
    return True


def _compose(*arguments: str) -> None:
    if not engine_answers():
        raise StartError(
            "no Docker engine with Compose v2 answers: start one, or --runtime process"
        )
    command = ["docker", "compose", "-f", str(compose_file()), *arguments]
    if subprocess.run(command, check=False).returncode != 0:
        raise StartError(f"`{' '.join(command)}` failed; its output is above")


def compose_up(detach: bool) -> None:
    if detach:
        _compose("up", "--detach", "--wait")
    else:
        _compose("up")


def compose_down(delete: bool) -> None:
    _compose("down", *(["--volumes"] if delete else []))


def compose_cluster(folder: Path) -> AbstractAsyncContextManager[Cluster]:
    """A cluster in containers, with the harness's proxies on its links."""
    raise StartError("--runtime compose is not there yet: use --runtime process")
