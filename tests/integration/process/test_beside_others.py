"""The installed package beside the user's own packages, and without a network.

The user's project has packages `broker` and `controller`, and kafka-python 2.2, with which it tests
itself; Highwater decodes with the wheel's own copy.  pip first fetches what it would install, as
wheels, since one dependency is published as source alone and would need its build tools.  From then
on everything runs in a network namespace that has a loopback interface alone, with neither Java nor
Maven on the path and an empty cache: any download would fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.missing import not_installed
from tests.integration.process.building import ROOT, run

THEIRS = "kafka-python==2.2.15"
LONGEST_S = 60.0
"""On a quiet machine; on a busy one the time is printed, and the test's own limit holds."""
LONGEST_START_S = 3.0

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

FAILOVER = """
import kafka as kafka_python
from kafka import KafkaConsumer, KafkaProducer

import broker, controller


def test_a_leader_dies(kafka, topic, group, chaos):
    assert kafka_python.__version__ == "2.2.15"
    assert broker.THEIRS and controller.THEIRS
    orders = topic("orders")
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all", retries=100)
    before = [producer.send(orders, b"%d" % n) for n in range(100)]
    for future in before:
        future.get(30)
    with chaos.kill(kafka.leader(orders)):
        kafka.wait.leader_changed(orders)
        for n in range(100, 200):
            producer.send(orders, b"%d" % n).get(30)
        consumer = KafkaConsumer(
            orders, bootstrap_servers=kafka.bootstrap, group_id=group("readers"),
            auto_offset_reset="earliest", consumer_timeout_ms=20_000,
        )
        seen = [next(consumer).value for _ in range(200)]
    assert sorted(map(int, set(seen))) == list(range(200))
    consumer.close()
    producer.close()
"""


@pytest.fixture(scope="module")
def wheels(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, the user's kafka-python, pytest, and what these depend on."""
    folder = tmp_path_factory.mktemp("wheels")
    venv.create(folder / "pip", with_pip=True, symlinks=True)
    locked = re.findall(r"^(?!kafka-python)[\w.-]+==\S+", lock_text(), re.MULTILINE)
    (folder / "locked.txt").write_text("\n".join(locked))
    pip = [folder / "pip" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    found = ["-c", folder / "locked.txt", wheel, THEIRS, "pytest"]
    command = [str(word) for word in (*pip, "wheel", "-w", folder / "wheels", *found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        not_installed(f"pip cannot fetch {THEIRS}: {done.stderr.strip().splitlines()[-1]}")
    return folder / "wheels"


def lock_text() -> str:
    return (ROOT / "requirements.lock").read_text()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a command with a loopback interface alone and an empty cache."""
    share = [] if os.getuid() == 0 else ["--map-root-user"]
    loopback = ["unshare", *share, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if not shutil.which("unshare") or not shutil.which("ip"):
        not_installed("util-linux or iproute2 is not installed: no network namespace can be made")
    tried = subprocess.run([*loopback, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no network namespace may be made here: {tried.stderr.strip()}")
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    for name in ("sh", "ip"):
        (home / "bin" / name).symlink_to(str(shutil.which(name)))
    environment = {
        "PATH": str(home / "bin"),
        "HOME": str(home),
        "HIGHWATER_CACHE": str(home / "cache"),
        "JAVA_HOME": "",
    }

    def in_namespace(*command: str | Path, cwd: Path) -> str:
        told = run(str(shutil.which("unshare")), *loopback[1:], *command, cwd=cwd, **environment)
        assert not (home / "cache").exists(), "something was fetched"
        return told

    return in_namespace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The user's project: the test, and packages that are called as our folders are."""
    for name in ("broker", "controller"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("THEIRS = True\n")
    (tmp_path / "test_failover.py").write_text(FAILOVER)
    return tmp_path


def test_from_venv_to_a_passing_failover_test(
    wheels: Path, alone: Callable[..., str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = os.getloadavg()[0] < 0.5 * (os.cpu_count() or 1)
    began = time.monotonic()
    alone(sys.executable, "-m", "venv", project / "venv", cwd=project)
    python = project / "venv" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels)
    alone(*pip, "highwater-kafka", THEIRS, "pytest", cwd=project)
    installed_s = time.monotonic() - began
    plain = ("--durations=0", "-p", "no:cacheprovider")
    told = alone(python, "-m", "pytest", *plain, cwd=project)
    all_s = time.monotonic() - began
    assert "1 passed" in told
    serve = re.search(r"([\d.]+)s setup ", told)  # the fixtures' cluster, from nothing
    assert serve is not None, told
    with capsys.disabled():
        print(
            f"\nenvironment and installation {installed_s:.1f} s, all {all_s:.1f} s,"
            f" of which the cluster's start {serve[1]} s{'' if quiet else ' (busy machine)'}"
        )
    patience = 1 if quiet else 4
    assert all_s < patience * LONGEST_S
    assert float(serve[1]) < patience * LONGEST_START_S
    which = "import highwater.kafka.wire.messages, kafka; print(kafka.__file__, kafka.__version__)"
    assert "_vendor/python/kafka/__init__.py 3.0" in alone(python, "-I", "-c", which, cwd=project)
    missing = subprocess.run(
        [python, "-I", "-m", "highwater.cli.main", "verify", project],
        capture_output=True,
        text=True,
    )
    hint = "pip install 'path/to/highwater[harness]'"  # of a folder of wheels pip notes nothing
    assert missing.stderr == f"highwater: `highwater verify` needs rich: {hint}\n"
