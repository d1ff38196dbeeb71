"""The Compose runtime: compose.yaml's containers, the same verbs through the Docker engine.

Theory of operation.  compose.yaml is used as it is, with an override file that a run writes into
its folder:

* Every listener is advertised as a port of the harness's proxies on the host
  (`host.docker.internal`, which is the bridge's gateway on Linux), and each broker's
  zookeeper.connect is such a port too.  So the same proxies as in the process runtime cut links
  and hold messages, without root and without packet filter rules that could be left behind.  The
  proxies reach the containers by ports published on 127.0.0.1.
* Data directories are folders of the run, written under the caller's user id: segments, epoch files
  and sizes are read as for processes.

The project's name is unique to the run.  If the harness is killed, a reaper process removes the
project.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from highwater.child_processes import StartError, take_lock
from highwater.cluster.compose.compose_files import compose_file
from highwater.cluster.interface import (
    PATIENCE_S,
    ZOOKEEPER,
    ClusterError,
    broker,
    broker_number,
    require_awake,
    require_member,
    require_running,
)
from highwater.cluster.links.link_rules import Links
from highwater.cluster.lives import DOWN, PAUSED, UP
from highwater.cluster.ports import claimed, free_ports, require_free
from highwater.cluster.shared import LocalCluster, Ports

HOST = "host.docker.internal"
LISTENERS = {"INTERNAL": 19092, "CONTROL": 9090, "EXTERNAL": 9092}
"""The containers' ports, as in compose.yaml."""
BROKERS = [1, 2, 3]


def require_engine() -> None:
    """Raises StartError with the remedy where no Docker engine with Compose v2 answers."""
    if shutil.which("docker") is None:
        raise StartError("docker is not installed: install it, or use --runtime process")
    for command, what in ((["info"], "a Docker engine"), (["compose", "version"], "Compose v2")):
        done = subprocess.run(["docker", *command], capture_output=True, check=False)
        if done.returncode != 0:
            raise StartError(f"{what} does not answer: start it, or use --runtime process")


@dataclass(frozen=True, slots=True)
class ComposeSettings:
    """How containers run; each run of the harness has its own project, with the defaults."""

    folder: Path
    properties: Mapping[str, str] = field(default_factory=dict)
    profile: str = "test"
    external_ports: Sequence[int] = ()
    """Fixed ports for clients; empty: free ones."""
    keep: bool = False
    """Whether the project belongs to the folder and keeps its volumes for the next cluster there.
    """

    @property
    def project(self) -> str:
        if not self.keep:
            return f"highwater-run-{os.getpid()}"
        return project_of(self.folder)


def project_of(folder: Path) -> str:
    """The Compose project of the cluster that `up` keeps in a folder."""
    digest = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()
    return f"highwater-up-{digest[:10]}"


def delete_volumes(folder: Path) -> None:
    """Deletes ZooKeeper's data, and everything else that Docker keeps for a folder's cluster."""
    label = f"label=com.docker.compose.project={project_of(folder)}"
    listing = ["docker", "volume", "ls", "--quiet", "--filter", label]
    found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    if found:
        subprocess.run(["docker", "volume", "rm", *found], capture_output=True, check=True)


@dataclass(slots=True)
class Project:
    """The arguments that every call of `docker compose` needs."""

    name: str
    override: Path
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        files = ["-f", str(compose_file()), "-f", str(self.override)]
        return ["docker", "compose", "-p", self.name, *files, *arguments]


class ComposeCluster(LocalCluster):
    """See the module's docstring.  Made by `compose_cluster`."""

    runtime = "compose"
    zookeeper_kind = "java"
    poll_s = 0.1

    def __init__(self, settings: ComposeSettings) -> None:
        self._settings = settings
        super().__init__(settings.folder, BROKERS, Links())
        self.project = Project(settings.project, settings.folder / "compose.override.json")
        self.project.environment["HIGHWATER_PROFILE"] = settings.profile
        self._running: set[str] = set()
        self._paused: set[str] = set()

    def _choose_ports(self) -> tuple[int, dict[int, Ports]]:
        external = self._settings.external_ports
        for port in external:
            require_free(port, "a broker's port", "stop what listens there, or give other ports")
        free = iter(free_ports(1 + 7 * len(BROKERS), without=external))
        zookeeper_port = next(free)

        def one_each() -> dict[str, int]:
            return {name: next(free) for name in LISTENERS}

        ports = {n: Ports(one_each(), one_each(), next(free)) for n in BROKERS}
        for of, port in zip(ports.values(), external, strict=False):
            of.advertised["EXTERNAL"] = port
        return zookeeper_port, ports

    # --- where things are

    def running(self, member: str) -> bool:
        return member in self._running

    def paused(self, member: str) -> bool:
        return member in self._paused

    def pid_of(self, member: str) -> int | None:
        return None

    def metrics_address(self, number: int) -> str | None:
        return None

    def container(self, member: str) -> str:
        return f"{self.project.name}-{member}-1"

    def unexpected_ends(self) -> list[str]:
        states = self._states()
        return [
            f"{member} ended: its container is {states.get(member, 'gone')}"
            for member in sorted(self._wanted)
            if states.get(member) != "running"
        ]

    @property
    def where_logs_are(self) -> str:
        return f"docker logs {self.container('broker-N')}"

    def broker_output(self, number: int) -> str:
        return self.write_output(broker(number))

    def write_output(self, member: str) -> str:
        """Writes a container's output into the run's folder; gives the text."""
        done = subprocess.run(
            ["docker", "logs", self.container(member)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        folder = self.folder / member
        folder.mkdir(exist_ok=True)
        (folder / "output.log").write_text(done.stdout)
        return done.stdout

    # --- the whole

    def write_override(self) -> None:
        services: dict[str, Any] = {
            ZOOKEEPER: {"ports": [f"127.0.0.1:{self._zookeeper_port}:2181"]}
        }
        for number, ports in self._ports.items():
            data = self.data_dirs(number)[0]
            data.mkdir(parents=True, exist_ok=True)
            ends = {name: (HOST, port) for name, port in ports.advertised.items()}
            ends["EXTERNAL"] = ("127.0.0.1", ports.advertised["EXTERNAL"])
            advertised = ",".join(f"{n}://{host}:{port}" for n, (host, port) in ends.items())
            published = [
                f"127.0.0.1:{ports.bound[name]}:{inside}"
                for name, inside in LISTENERS.items()
                if name != "EXTERNAL"  # compose.yaml publishes that one, by BROKER_n_PORT
            ]
            services[broker(number)] = {
                "user": f"{os.getuid()}:{os.getgid()}",
                "extra_hosts": [f"{HOST}:host-gateway"],
                "ports": published,
                "volumes": [f"{data.resolve()}:/var/lib/kafka/data"],
                "environment": {
                    "KAFKA_ADVERTISED_LISTENERS": advertised,
                    "KAFKA_ZOOKEEPER_CONNECT": f"{HOST}:{ports.zookeeper}",
                    **{_variable(k): v for k, v in self._settings.properties.items()},
                },
            }
            self.project.environment[f"BROKER_{number}_PORT"] = str(ports.bound["EXTERNAL"])
        self.project.override.write_text(json.dumps({"services": services}, indent=1))

    async def start_all(self, timeout_s: float) -> None:
        await self._compose("up", "--detach", "--build", *self.members(), timeout_s=timeout_s)
        self._running = self._wanted = set(self.members())
        self._running = set(self._running)
        for member in self.members():
            self.lives.note(member, UP)
        await self._wait_ready(self.brokers, set(self.brokers), timeout_s)

    @property
    def ending(self) -> list[str]:
        """The Compose command that removes all containers."""
        volumes = [] if self._settings.keep else ["--volumes"]
        return ["down", *volumes, "--timeout", "30" if self._settings.keep else "2"]

    async def down(self) -> None:
        await self._compose(*self.ending, timeout_s=120, check=False)

    # --- verbs

    async def kill(self, member: str) -> None:
        require_running(self, member)
        self._wanted.discard(member)
        if member in self._paused:
            await self.resume(member)
        await _docker("kill", self.container(member))
        with trio.move_on_after(10):
            while (await self._state(member))[0] == "running":
                await trio.sleep(self.poll_s)
        self._running.discard(member)
        self.lives.note(member, DOWN)

    async def stop(self, member: str, timeout_s: float = PATIENCE_S) -> int:
        require_awake(self, member)
        self._wanted.discard(member)
        await _docker("stop", "-t", str(int(timeout_s)), self.container(member))
        self._running.discard(member)
        self.lives.note(member, DOWN)
        return (await self._state(member))[1]

    async def start(self, member: str, ready: bool = True, timeout_s: float = PATIENCE_S) -> None:
        require_member(self, member)
        if self.running(member):
            raise ClusterError(f"{member} runs already")
        await _docker("start", self.container(member))
        self.lives.note(member, UP)
        self._running.add(member)
        self._wanted.add(member)
        if ready:
            await self.wait_ready(member, timeout_s)

    async def wait_ready(self, member: str, timeout_s: float = PATIENCE_S) -> None:
        if member != ZOOKEEPER:
            number = broker_number(member)
            await self._wait_ready([number], {number}, timeout_s)

    async def pause(self, member: str) -> None:
        require_running(self, member)
        await _docker("pause", self.container(member))
        if (await self._state(member))[0] == "paused":
            self._paused.add(member)
            self.lives.note(member, PAUSED)

    async def resume(self, member: str) -> None:
        require_member(self, member)
        if member in self._paused:
            await _docker("unpause", self.container(member))
            self._paused.discard(member)
            self.lives.note(member, UP)

    # --- inside

    async def _compose(self, *arguments: str, timeout_s: float, check: bool = True) -> None:
        environment = {**os.environ, **self.project.environment, "CLUSTER": self.project.name}
        done = None
        with trio.move_on_after(timeout_s):
            done = await trio.run_process(
                self.project.command(*arguments),
                env=environment,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        if check and (done is None or done.returncode != 0):
            lines = [] if done is None else done.stderr.decode(errors="replace").splitlines()
            said = next((line for line in reversed(lines) if line.strip()), "no answer in time")
            raise StartError(f"docker compose {arguments[0]}: {said.strip()}{_remedy(said)}")

    def _states(self) -> dict[str, str]:
        done = subprocess.run(
            ["docker", "ps", "-a", "--filter",
             f"label=com.docker.compose.project={self.project.name}",
             "--format", '{{.Label "com.docker.compose.service"}} {{.State}}'],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        pairs = [line.split() for line in done.stdout.splitlines()]
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}

    async def _state(self, member: str) -> tuple[str, int]:
        """A member's state (running, paused or exited) and exit code."""
        text = await _docker(
            "inspect", "-f", "{{.State.Status}} {{.State.ExitCode}}", self.container(member)
        )
        state, _, code = text.strip().partition(" ")
        return state, int(code or 0)

    async def _require_alive(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            state, code = await self._state(broker(number))
            if state == "exited":
                lines = self.broker_output(number).strip().splitlines()
                last = lines[-1] if lines else ""
                raise StartError(f"broker-{number} ended with code {code}: {last}")


def _remedy(said: str) -> str:
    if not re.search("registry|pull access|manifest", said):
        return ""
    return (
        "; where no registry answers, BASE_IMAGE and ZOOKEEPER_IMAGE name images that the engine"
        " has, in place of python:3.13-slim and zookeeper:3.9"
    )


def _variable(name: str) -> str:
    """The environment variable of a property, as the images name it."""
    escaped = name.replace("_", "__").replace("-", "___").replace(".", "_")
    return f"KAFKA_{escaped.upper()}"


async def _docker(*arguments: str) -> str:
    done = await trio.run_process(
        ["docker", *arguments], capture_stdout=True, capture_stderr=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise ClusterError(f"docker {' '.join(arguments[:1])}: {said}")
    return bytes(done.stdout).decode(errors="replace")


async def _gateway() -> list[str]:
    """The host's address on the engine's bridge, which the containers reach as host-gateway; empty
    on Docker Desktop, where host-gateway leads to 127.0.0.1.
    """
    text = await _docker("network", "inspect", "bridge")
    found = re.search(r'"Gateway": "([0-9.]+)"', text)
    if sys.platform == "darwin" or found is None:
        return []
    return [found.group(1)]


@asynccontextmanager
async def compose_cluster(
    settings: ComposeSettings, timeout_s: float = 300
) -> AsyncIterator[ComposeCluster]:
    """A running cluster in containers; no container is left behind, whatever happens."""
    require_engine()
    with ExitStack() as held:
        held.enter_context(take_lock(settings.folder))
        held.enter_context(claimed(settings.external_ports, settings.folder))
        async with _serving(ComposeCluster(settings), timeout_s) as cluster:
            yield cluster


@asynccontextmanager
async def _serving(cluster: ComposeCluster, timeout_s: float) -> AsyncIterator[ComposeCluster]:
    cluster.write_override()
    cluster.write_state()
    reaper = subprocess.Popen(
        [sys.executable, "-I", "-m", "highwater.cluster.reaper",
         *cluster.project.command(*cluster.ending)],
        stdin=subprocess.PIPE,
        env={**os.environ, **cluster.project.environment, "CLUSTER": cluster.project.name},
        start_new_session=True,
    )  # fmt: skip
    try:
        async with trio.open_nursery() as nursery:
            try:
                await cluster.serve_proxies(nursery, ["127.0.0.1", *await _gateway()])
                await cluster.start_all(timeout_s)
                yield cluster
            finally:
                with trio.CancelScope(shield=True):
                    assert cluster.links is not None
                    cluster.links.heal_all()
                    for member in cluster.members():
                        cluster.write_output(member)
                    await cluster.down()
                nursery.cancel_scope.cancel()
    finally:
        reaper.kill()
        reaper.wait()
        assert reaper.stdin is not None
        reaper.stdin.close()
