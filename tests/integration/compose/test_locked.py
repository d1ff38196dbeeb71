"""`docker/locked.yaml`: no root, no capabilities, no writable file system, and bounds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.cluster_image import build, container, docker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.compose,
    pytest.mark.rare,
    pytest.mark.timeout(300),
]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
ComposeStack = Callable[..., AbstractContextManager[Any]]
SERVICES = ("zookeeper", "broker-1", "broker-2", "broker-3")
MIB = 1 << 20


@pytest.fixture(scope="module")
def stack(compose_stack: ComposeStack) -> Iterator[Any]:
    with compose_stack("locked", files=["compose.yaml", "docker/locked.yaml"]) as running:
        yield running


def status(stack: Any, service: str) -> dict[str, str]:
    """What the kernel says of the container's first process."""
    text = stack.compose("exec", "-T", service, "cat", "/proc/1/status").stdout
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


@pytest.mark.parametrize("service", SERVICES)
def test_its_process_has_no_root_and_no_capability(stack: Any, service: str) -> None:
    found = status(stack, service)
    assert "0" not in found["Uid"].split()
    assert {found[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {"0" * 16}
    assert found["NoNewPrivs"] == "1"


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_can_be_written_but_data_and_temporary_files(stack: Any, service: str) -> None:
    data = "/data" if service == "zookeeper" else "/var/lib/kafka/data"
    script = "for f in /x /usr/x /etc/x /var/lib/x /opt/x; do ! (: >$f) 2>&1 || echo wrote $f; done"
    tried = stack.compose("exec", "-T", service, "sh", "-c", script).stdout
    assert "wrote" not in tried
    assert "Read-only file system" in tried
    kept = f"for f in /tmp/x {data}/x; do : >$f && rm $f; done"
    stack.compose("exec", "-T", service, "sh", "-c", kept)


@pytest.mark.parametrize("service", SERVICES)
def test_its_memory_and_its_processes_are_bounded(stack: Any, service: str) -> None:
    container = stack.compose("ps", "-q", service).stdout.strip()
    [found] = json.loads(docker("inspect", container))
    assert found["HostConfig"]["Memory"] == 512 * MIB
    assert 0 < found["HostConfig"]["PidsLimit"] <= 200


def test_it_serves_also_after_a_kill(stack: Any, kcat: Run) -> None:
    lines = [f"line {n}" for n in range(500)]
    topic = ("-b", stack.bootstrap, "-t", "locked", "-p", "0")
    sent = "".join(f"{line}\n" for line in lines)
    done = kcat("-P", *topic, "-X", "acks=all", stdin=sent)
    assert done.returncode == 0, done.stderr
    stack.compose("kill", *SERVICES)
    stack.compose("up", "--detach", "--wait")
    read = kcat("-C", *topic, "-o", "beginning", "-e", "-q")
    assert read.stdout.splitlines() == lines, read.stderr


def test_a_whole_cluster_in_one_container_is_locked_as_well(kcat: Run) -> None:
    build()
    options = (
        "--read-only",
        "--tmpfs=/tmp:size=64m",
        "--tmpfs=/var/lib/highwater:uid=1000,size=512m",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--memory=1g",
        "--pids-limit=300",
    )
    with container(options=options) as c:
        c.start_cluster()
        c.control.create_topic("orders")
        topic = ("-b", ",".join(c.advertised), "-t", "orders")
        assert kcat("-P", *topic, "-X", "acks=all", stdin="x\n").returncode == 0
        assert kcat("-C", *topic, "-o", "beginning", "-e", "-q").stdout == "x\n"
        told = docker("exec", c.name, "cat", "/proc/1/status")
        assert "NoNewPrivs:\t1" in told
        assert "CapEff:\t0000000000000000" in told
        with pytest.raises(AssertionError, match="Read-only file system"):
            docker("exec", c.name, "touch", "/x")
