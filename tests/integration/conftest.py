"""Fixtures of integration tests: containers by compose.yaml, kcat, and Apache Kafka's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from highwater.cluster.ports import free_ports
from highwater.cluster.processes import apache
from tests.background import BackgroundCluster
from tests.integration.missing import not_installed

ROOT = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def background_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path_factory.mktemp("highwater")) as cluster:
        yield cluster


@pytest.fixture
def background(background_session: BackgroundCluster) -> Iterator[BackgroundCluster]:
    """A cluster inside this process, for tests that look into it; whole and without topics after
    each test, since the next one may use the same names."""
    yield background_session
    background_session.mend()
    admin = KafkaAdminClient(bootstrap_servers=background_session.bootstrap_servers)
    try:
        topics = [name for name in admin.list_topics() if not name.startswith("__")]
    finally:
        admin.close()
    for name in topics:  # asks again while a broker that was paused has no session yet
        background_session.delete_topic(name)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running project of compose.yaml: its name, the brokers' ports, and `docker compose`."""

    name: str
    ports: list[int]
    environment: dict[str, str]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def highwater(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "-m", "highwater.cli.main", *arguments], cwd=ROOT,
            env={**os.environ, **self.environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def compose(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["docker", "compose", *arguments], cwd=ROOT, env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


@contextmanager
def _stack(
    settings: Path,
    name: str,
    profiles: Sequence[str],
    services: Sequence[str],
    files: Sequence[str],
) -> Iterator[Stack]:
    from testcontainers.compose import DockerCompose

    ports = free_ports(4)
    variables = {"CLUSTER": f"highwater-{name}-{os.getpid()}", "SPARK_UI_PORT": str(ports.pop())}
    variables |= {f"BROKER_{number}_PORT": str(port) for number, port in enumerate(ports, 1)}
    variables["RUNS"] = str(settings.parent)
    variables["COMPOSE_FILE"] = os.pathsep.join(files)
    settings.write_text("".join(f"{key}={value}\n" for key, value in variables.items()))
    given = [str(path) for path in (ROOT / ".env", settings) if path.exists()]
    compose = DockerCompose(
        str(ROOT), compose_file_name=list(files), build=True, wait=True, env_file=given,
        profiles=list(profiles) or None, services=list(services) or None,
    )  # fmt: skip
    stack = Stack(variables["CLUSTER"], ports, variables)
    try:
        compose.start()
        yield stack
    except subprocess.CalledProcessError as error:
        logs = stack.compose("logs", "--tail", "20", check=False).stdout
        pytest.fail(f"{error}\n{error.stderr.decode(errors='replace')[-3000:]}\n{logs}")
    finally:
        stack.compose(
            *(part for profile in profiles for part in ("--profile", profile)),
            *("down", "--volumes", "--timeout", "5"),
        )


@pytest.fixture(scope="session")
def compose_stack(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., AbstractContextManager[Stack]]:
    """Starts compose.yaml under a name and ports of its own; `with compose_stack("name"): ...`."""

    def start(
        name: str,
        profiles: Sequence[str] = (),
        services: Sequence[str] = (),
        files: Sequence[str] = ("compose.yaml",),
    ) -> AbstractContextManager[Stack]:
        folder = tmp_path_factory.mktemp(name)
        return _stack(folder / "compose.env", name, profiles, services, files)

    return start


@pytest.fixture(scope="session")
def kcat() -> Run:
    """kcat with arguments; `stdin` is its input."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        not_installed("kcat is not installed (Debian: apt-get install kcat)")

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program), *arguments], input=stdin, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def apache_tool() -> Run:
    """One of Apache Kafka's own command-line classes."""
    if shutil.which("mvn") is None:
        not_installed("Maven is not installed: Apache Kafka's tools cannot be fetched")
    apache.home()
    return apache.tool
