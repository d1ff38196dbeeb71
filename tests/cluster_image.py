"""The image highwater/cluster, and containers of it: for the tests and for `scripts/long`."""

from __future__ import annotations

import os
import secrets
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from highwater.agent.client import Control, ControlError
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
IMAGE = "highwater/cluster"
PORTS = (9990, 9092, 9093, 9094)


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def build() -> None:
    """Builds the image on the base images that .env names, else on the public ones."""
    lines = (ROOT / ".env").read_text().splitlines() if (ROOT / ".env").exists() else []
    images = [line for line in lines if line.startswith("BASE_IMAGE=")]
    arguments = [word for line in images for word in ("--build-arg", line)]
    docker("build", "-q", "-f", "docker/cluster/Dockerfile", *arguments, "-t", IMAGE, ".")


def unpacked_mb() -> float:
    return int(docker("image", "inspect", "--format", "{{.Size}}", IMAGE)) / 1e6


def compressed_mb() -> float:
    """About as much as a registry sends, which has each layer compressed by gzip."""
    with subprocess.Popen(["docker", "save", f"{IMAGE}:latest"], stdout=subprocess.PIPE) as save:
        assert save.stdout is not None
        packed, size = zlib.compressobj(6), 0
        while piece := save.stdout.read(1 << 20):
            size += len(packed.compress(piece))
    assert save.returncode == 0
    return (size + len(packed.flush())) / 1e6


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    token: str
    control: Control
    """Of the control API, at its published port."""
    advertised: list[str]
    """How this machine reaches the brokers."""

    def start_cluster(self) -> None:
        self.control.call("POST", "/v1/cluster", {"advertised": self.advertised})


def health(name: str) -> str:
    return docker("inspect", "--format", "{{.State.Health.Status}}", name)


def _answers(control: Control) -> bool:
    try:
        return bool(control.openapi())
    except ControlError as error:
        if error.kind != "unreachable":
            raise
        return False


@contextmanager
def container(
    publish: Sequence[str] = (), options: Sequence[str] = (), **environment: str
) -> Iterator[Container]:
    """A container whose control API answers; `publish`: as of `docker run`, else any ports;
    `options`: more of its options."""
    name = f"highwater-cluster-{os.getpid()}-{secrets.token_hex(3)}"
    token = environment.setdefault("HIGHWATER_CONTROL_TOKEN", secrets.token_hex(16))
    words = [f"--env={key}={value}" for key, value in environment.items() if value]
    words += [f"--publish={port}" for port in publish or [f"127.0.0.1::{p}" for p in PORTS]]
    docker("run", "--detach", "--name", name, *options, *words, IMAGE)
    try:
        places = dict(line.split("/tcp -> ") for line in docker("port", name).splitlines())
        if not token:
            eventually(lambda: health(name) == "healthy", "healthy", lambda: docker("logs", name))
            token = docker("exec", name, "cat", "/var/lib/highwater/control-token")
        control = Control(f"http://{places['9990']}", token)
        advertised = [places[str(port)].replace("127.0.0.1", "localhost") for port in PORTS[1:]]
        eventually(lambda: _answers(control), "it answers", lambda: docker("logs", name))
        yield Container(name, token, control, advertised)
        control.close()
    finally:
        docker("rm", "--force", "--volumes", name)
