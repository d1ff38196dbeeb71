"""`highwater up --runtime compose`: the same verbs as for processes, and data that stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from highwater.cluster.compose.compose_cluster import project_of
from highwater.cluster.ports import free_ports
from tests.integration.conftest import ROOT

Highwater = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.compose,
    pytest.mark.slow,
    pytest.mark.rare,  # the demo on containers has the same cluster, and CI runs it
    pytest.mark.timeout(900),
]


@pytest.fixture
def highwater(tmp_path: Path) -> Highwater:
    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-m", "highwater.cli.main", *arguments]
        command.append(f"--dir={tmp_path}")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def _left(project: str) -> str:
    label = f"label=com.docker.compose.project={project}"
    return "".join(
        subprocess.run(["docker", *what, "-q", "--filter", label], capture_output=True, text=True)
        .stdout
        for what in (("ps", "-a"), ("volume", "ls"))
    )  # fmt: skip


def test_containers_are_broken_and_mended_and_keep_their_data(
    highwater: Highwater, tmp_path: Path
) -> None:
    free = set(free_ports(60))
    first = min(port for port in free if {port + 1, port + 2} <= free)
    up = ("up", "--runtime=compose", "--detach", f"--port={first}")
    bootstrap = f"127.0.0.1:{first}"
    try:
        assert "3 brokers and ZooKeeper serve" in highwater(*up).stdout
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retries=100)
        producer.send("orders", b"one").get(60)
        assert "kill broker-2: ended by SIGKILL" in highwater("fault", "kill", "broker-2").stdout
        assert "broker-2    is down" in highwater("status", code=1).stdout
        producer.send("orders", b"two").get(60)
        assert "is whole after" in highwater("up").stdout
        highwater("status")
        producer.close()
        assert highwater("down").stdout == "stopped\n"
        highwater(*up)
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        )  # fmt: skip
        assert {next(consumer).value for _ in range(2)} == {b"one", b"two"}
        consumer.close()
    finally:
        highwater("down", "--delete")
    assert not tmp_path.exists()
    assert not _left(project_of(tmp_path))
