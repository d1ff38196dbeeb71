"""The suites of clients in Python, run by pytest."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

from highwater.cluster.ports import free_ports
from highwater.cluster.processes import zookeeper_process as zookeeper
from highwater.cluster.processes.programs import ApacheKafka
from highwater.cluster.processes.zookeeper_choice import EMBEDDED, JAVA
from tests.suites.result import Result, from_junit
from tests.suites.running import CannotRun, Suite, checkout, cluster_of, command

KAFKA_PYTHON, AIOKAFKA, KAZOO = "3.0.12", "0.14.0", "2.11.0"
TICK_MS = 2000
"""Of the server of kazoo's tests, as kazoo's own."""


def _environment(work: Path, *packages: str | Path) -> Path:
    folder = work / "venv"
    if not folder.exists():
        venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command(python, "-m", "pip", "install", "-q", *packages, cwd=work)
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
    tests = checkout(suite, source, work)
    shutil.rmtree(tests / "kafka")  # the installed one is to be tested
    # its fixture looks for a release of Kafka of this number, even where it is not to start one
    (tests / "servers" / "3.6.0" / "kafka-bin").mkdir(parents=True)
    extras = ("pytest", "pytest-timeout", "pytest-mock", "lz4", "zstandard", "python-snappy")
    python = _environment(work, f"kafka-python=={suite.version}", *extras)
    with cluster_of(suite, work / "cluster") as cluster:
        env = {
            "KAFKA_URI": f"kafka://{cluster.bootstrap_servers}",
            "KAFKA_VERSION": "3.6.0",
            "PYTHONPATH": str(tests),
        }
        return _pytest(python, tests, left_out, env, "test/integration")


def aiokafka(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its fixtures start Kafka in a container; ours, of the same names, give this cluster."""
    tests = checkout(suite, source, work)
    shutil.copy(Path(__file__).with_name("aiokafka_fixtures.py"), tests / "tests" / "conftest.py")
    shutil.rmtree(tests / "aiokafka")  # the installed one, which is built, is to be tested
    extras = ("pytest", "pytest-timeout", "pytest-asyncio", "pytest-mock", "docker")
    python = _environment(work, f"aiokafka[lz4,snappy,zstd]=={suite.version}", *extras)
    with cluster_of(suite, work / "cluster") as cluster:
        env = {"BOOTSTRAP": cluster.bootstrap_servers, "PYTHONPATH": str(tests)}
        scope = "asyncio_default_fixture_loop_scope=function"
        return _pytest(python, tests, left_out, env, "-o", scope, "-W", "default", "tests")


def kazoo(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """On Highwater's ZooKeeper, or on Java's; its harness would start three of Java's."""
    tests = checkout(suite, source, work)
    shutil.copy(Path(__file__).with_name("kazoo_fixtures.py"), tests / "kazoo/tests/conftest.py")
    python = _environment(work, f"kazoo[test]=={suite.version}")
    kind = JAVA if isinstance(suite.program, ApacheKafka) else EMBEDDED
    folder, port = work / "cluster", free_ports(1)[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    env = {
        "ZOOKEEPER_COMMAND": shlex.join(zookeeper.start_of(kind, folder, port, TICK_MS)),
        "ZOOKEEPER_PORT": str(port),
        "ZOOKEEPER_OUTPUT": str(folder / "output.log"),
        "PYTHONPATH": str(tests),
        "CI": "",
    }
    return _pytest(python, tests, left_out, env, "-o", "log_cli=false", "kazoo/tests")
