"""For each suite: its source, the cluster that it needs, and its runner."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import Highwater
from highwater.maven import cache_dir
from tests.background import BackgroundCluster
from tests.suites.result import Result, from_go, from_junit

FRANZ_GO, SARAMA, TOXIPROXY = "v1.22.2", "v1.61.1", "v2.5.0"
KAFKA_PYTHON, AIOKAFKA = "3.0.12", "0.14.0"
TIME_LIMIT_S = 1800
_TOXIPROXY_PORT = 28474
_FUNCTIONAL = (
    "^Test(Func|Consumer.*(Follower|HighWater|Batch|Deadlock)|VersionMatrix|ReadOnly|Interceptors)"
)


class CannotRun(Exception):
    """Something that the suite needs is missing; the message names it, and the remedy."""


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    version: str
    source: str
    run: Callable[[Suite, str, Path | None, Path], list[Result]]
    """Gets the suite, the pattern of tests left out, a copy of its source, and a folder to work in.
    """
    properties: dict[str, str] = field(default_factory=dict)
    brokers: int = 3


def _command(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**os.environ, **(env or {})},
        capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise CannotRun(f"{words[0]} {words[1]}: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout


def _need(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise CannotRun(f"no {program} on PATH: {remedy}")
    return found


@contextmanager
def _cluster(
    suite: Suite, folder: Path, program: Highwater | None = None
) -> Iterator[BackgroundCluster]:
    shutil.rmtree(folder, ignore_errors=True)
    settings = Settings(
        folder, suite.brokers, properties=suite.properties, program=program or Highwater()
    )
    with BackgroundCluster.of(settings) as cluster:
        yield cluster


# --- Go


def _go_module(folder: Path, *modules: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text("module suites\n\ngo 1.24\n")
    _command(_need("go", "install Go 1.24 or later"), "get", *modules, cwd=folder)


def _go_test(
    folder: Path, package: str, left_out: str, env: dict[str, str], *more: str
) -> list[Result]:
    command = ["go", "test", "-json", "-count=1", f"-timeout={TIME_LIMIT_S}s", *more]
    done = subprocess.run(
        [*command, f"-skip={left_out}", package], cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod", **env}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return from_go([*done.stderr.splitlines(), *done.stdout.splitlines()])


def franz_go(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    module = "github.com/twmb/franz-go"
    _go_module(work, f"{module}@{suite.version}", f"{module}/pkg/kgo@{suite.version}")
    with _cluster(suite, work / "cluster") as cluster:
        env = {"KGO_SEEDS": cluster.bootstrap_servers, "KGO_TEST_RECORDS": "50000"}
        return _go_test(work, f"{module}/pkg/kgo", left_out, env)


class _BehindToxiproxy(Highwater):
    """A broker that gives clients the port at which sarama's tests put a proxy before it."""

    def command(self, properties: Path, profile: str) -> list[str]:
        number = int(properties.parent.name.removeprefix("broker-"))
        text = properties.read_text()
        properties.write_text(
            re.sub(
                r"(?m)^(advertised.listeners=.*EXTERNAL://127.0.0.1:)\d+",
                rf"\g<1>{29090 + number}",
                text,
            )
        )
        return super().command(properties, profile)


def sarama(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its clients reach brokers by toxiproxy, at the ports from 29091 on."""
    module, toxiproxy = "github.com/IBM/sarama", "github.com/Shopify/toxiproxy/v2"
    _go_module(work, f"{module}@{suite.version}", f"{toxiproxy}@{TOXIPROXY}")
    server = work / "bin" / "server"
    build = {"GOBIN": str(server.parent), "GOFLAGS": "-mod=mod"}
    _command("go", "install", f"{toxiproxy}/cmd/server", cwd=work, env=build)
    with (
        _cluster(suite, work / "cluster", _BehindToxiproxy()) as cluster,
        subprocess.Popen([server, "-port", f"{_TOXIPROXY_PORT}"], stdout=-3, stderr=-3) as proxy,
    ):
        try:
            for number in cluster.cluster.brokers:
                _add_proxy(f"kafka{number}", 29090 + number, cluster.cluster.address(number))
            env = {
                "TOXIPROXY_ADDR": f"http://127.0.0.1:{_TOXIPROXY_PORT}",
                "KAFKA_VERSION": "3.6.0",
            }
            return _go_test(work, module, left_out, env, "-tags=functional", f"-run={_FUNCTIONAL}")
        finally:
            proxy.terminate()


def _add_proxy(name: str, port: int, upstream: tuple[str, int]) -> None:
    body = {
        "name": name,
        "listen": f"127.0.0.1:{port}",
        "upstream": f"{upstream[0]}:{upstream[1]}",
        "enabled": True,
    }
    url = f"http://127.0.0.1:{_TOXIPROXY_PORT}/proxies"
    deadline = time.monotonic() + 10
    while True:
        try:
            urllib.request.urlopen(url, json.dumps(body).encode(), timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise CannotRun(f"toxiproxy cannot listen on {body['listen']}: {said}") from error
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# --- Python


def _checkout(suite: Suite, source: Path | None, work: Path) -> Path:
    """A copy of the client's repository at its tag, because its tests are in no package."""
    target = work / "source"
    shutil.rmtree(target, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, target)
        return target
    tag = ("v" if suite.name == "aiokafka" else "") + suite.version
    try:
        _command(
            "git", "clone", "-q", "--depth=1", f"--branch={tag}", suite.source, target, cwd=work
        )
    except CannotRun as error:
        remedy = f"where it cannot be reached, give a copy: --source {suite.name}=DIR"
        raise CannotRun(f"{error} ({remedy})") from error
    return target


def _environment(work: Path, *packages: str | Path) -> Path:
    folder = work / "venv"
    if not folder.exists():
        venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _command(python, "-m", "pip", "install", "-q", *packages, cwd=work)
    return python


def _pytest(
    python: Path, source: Path, left_out: str, env: dict[str, str], *more: str
) -> list[Result]:
    report = source / "results.xml"
    skip = " and ".join(f"not {word}" for word in left_out.split("|"))
    options = ["-p", "no:cacheprovider", "--timeout=300", "--timeout-method=signal", "-k", skip]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-vv", f"--junitxml={report}", *options, *more], cwd=source,
        env={**os.environ, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not report.exists():
        raise CannotRun(
            f"pytest ended with code {done.returncode}: {(done.stdout or done.stderr)[-1000:]}"
        )
    return from_junit(report)


def kafka_python(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    tests = _checkout(suite, source, work)
    shutil.rmtree(tests / "kafka")  # the installed one is to be tested
    # its fixture looks for a release of Kafka of this number, even where it is not to start one
    (tests / "servers" / "3.6.0" / "kafka-bin").mkdir(parents=True)
    extras = ("pytest", "pytest-timeout", "pytest-mock", "lz4", "zstandard", "python-snappy")
    python = _environment(work, f"kafka-python=={suite.version}", *extras)
    with _cluster(suite, work / "cluster") as cluster:
        env = {
            "KAFKA_URI": f"kafka://{cluster.bootstrap_servers}",
            "KAFKA_VERSION": "3.6.0",
            "PYTHONPATH": str(tests),
        }
        return _pytest(python, tests, left_out, env, "test/integration")


def aiokafka(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its fixtures start Kafka in a container; ours, of the same names, give this cluster."""
    tests = _checkout(suite, source, work)
    shutil.copy(Path(__file__).with_name("aiokafka_fixtures.py"), tests / "tests" / "conftest.py")
    shutil.rmtree(tests / "aiokafka")  # the installed one, which is built, is to be tested
    extras = ("pytest", "pytest-timeout", "pytest-asyncio", "pytest-mock", "docker")
    python = _environment(work, f"aiokafka[lz4,snappy,zstd]=={suite.version}", *extras)
    with _cluster(suite, work / "cluster") as cluster:
        env = {"BOOTSTRAP": cluster.bootstrap_servers, "PYTHONPATH": str(tests)}
        scope = "asyncio_default_fixture_loop_scope=function"
        return _pytest(python, tests, left_out, env, "-o", scope, "-W", "default", "tests")


_ONE = {
    "default.replication.factor": "1", "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip

SUITES = (
    Suite("franz-go", FRANZ_GO, "https://github.com/twmb/franz-go", franz_go),
    Suite(
        "sarama", SARAMA, "https://github.com/IBM/sarama", sarama,
        {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}, brokers=5,
    ),
    Suite(
        "kafka-python", KAFKA_PYTHON, "https://github.com/dpkp/kafka-python", kafka_python,
        {**_ONE, "num.partitions": "4"}, brokers=1,
    ),
    Suite(
        "aiokafka", AIOKAFKA, "https://github.com/aio-libs/aiokafka", aiokafka,
        {**_ONE, "num.partitions": "2"}, brokers=1,
    ),
)  # fmt: skip


def work_folder(name: str) -> Path:
    folder = cache_dir() / "client-suites" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
