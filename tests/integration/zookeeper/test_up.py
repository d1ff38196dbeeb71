"""Which ZooKeeper `highwater up` has: its own without Java, or one that runs; the same faults, and
a folder that remembers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from highwater.agent.client import Control, ControlError
from highwater.cli.cluster_folder import control_url
from highwater.cluster.ports import free_ports
from highwater.zookeeper.jute import Type
from tests.integration.zookeeper.raw_client import Raw, path_and
from tests.integration.zookeeper.two_servers import server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def highwater(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "highwater.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@contextmanager
def control_of(folder: Path) -> Iterator[Control]:
    url = control_url(folder)
    assert url is not None
    control = Control(url)
    try:
        yield control
    finally:
        control.close()


def test_it_needs_no_java_and_keeps_what_was_there(tmp_path: Path) -> None:
    port, folder = free_ports(3)[0], tmp_path / "cluster"
    # programs that are needed, and no java among them
    (tmp_path / "bin").mkdir()
    bare = {**os.environ, "PATH": str(tmp_path / "bin")}
    bare.pop("JAVA_HOME", None)
    up = ("up", "--detach", "--brokers", "2", "--port", str(port), "--dir", str(folder))
    assert shutil.which("java", path=bare["PATH"]) is None
    done = highwater(*up, "--zookeeper", "java", env=bare)
    assert done.returncode != 0
    assert "no Java found" in done.stderr
    assert "use --zookeeper embedded" in done.stderr
    done = highwater(*up, "--zookeeper-sync", env=bare)
    assert done.returncode == 0, done.stderr
    try:
        assert "(embedded)" in done.stdout
        pid = json.loads((folder / "state.json").read_text())["processes"]["zookeeper"]["pid"]
        assert "--sync" in psutil.Process(pid).cmdline()
        with control_of(folder) as control:
            assert control.status()["zookeeper_kind"] == "embedded"
            control.create_topic("orders", partitions=1)
            before = control.topic("orders")["partitions"][0]["leader_epoch"]
            fault = control.fault("kill", "zookeeper")
            control.end_fault(fault["id"])
            control.fault("expire_session", "broker-1")
            control.wait("healthy", 60)  # or it may have no follower that could lead
            control.fault("swap_leader", "orders-0")
            control.wait("healthy", 60)
            assert control.topic("orders")["partitions"][0]["leader_epoch"] > before
        assert "embedded" in highwater("status", "--dir", str(folder)).stdout
        assert highwater("down", "--dir", str(folder)).returncode == 0
        wrong = highwater(*up, "--zookeeper", "java")
        assert "has its data in the ZooKeeper embedded: use --zookeeper embedded" in wrong.stderr
        assert highwater(*up, env=bare).returncode == 0, "it goes on with what the folder has"
        with control_of(folder) as control:
            assert "orders" in [topic["name"] for topic in control.topics()]
    finally:
        highwater("down", "--dir", str(folder))


def test_one_that_runs_already_is_no_member_and_its_links_can_be_cut(tmp_path: Path) -> None:
    port, folder, dead = free_ports(3)[0], tmp_path / "cluster", free_ports(1)[0]
    up = ("up", "--detach", "--brokers", "2", "--port", str(port), "--dir", str(folder))
    nobody = highwater(*up, "--zookeeper", f"127.0.0.1:{dead}")
    assert nobody.returncode != 0
    assert f"no ZooKeeper answers at 127.0.0.1:{dead}" in nobody.stderr
    with server(tmp_path) as zk:
        address = f"127.0.0.1:{dead},127.0.0.1:{zk.port}/mine"
        done = highwater(*up, "--zookeeper", address)
        assert done.returncode == 0, done.stderr
        try:
            assert f"{address} (elsewhere)" in done.stdout
            with control_of(folder) as control:
                control.create_topic("orders", partitions=1)
                assert set(control.status()["members"]) == {"broker-1", "broker-2"}
                with pytest.raises(ControlError, match="no member 'zookeeper'"):
                    control.fault("kill", "zookeeper")
                control.fault("expire_session", "broker-1")
                control.wait("healthy", 60)
                fault = control.fault("isolate", "broker-1")
                assert ["broker-1", "zookeeper"] in control.status()["cuts"]
                control.end_fault(fault["id"])
                control.wait("healthy", 60)
            raw = Raw(("127.0.0.1", zk.port))
            assert raw.connect()
            path = path_and("/mine/brokers/topics/orders", b"\0")
            assert raw.ask(Type.EXISTS, path)[0] == 0
            assert f"ZooKeeper   {address}" in highwater("status", "--dir", str(folder)).stdout
            assert highwater("down", "--dir", str(folder)).returncode == 0
            assert highwater(*up).returncode == 0, "it goes on with the one that it had"
            with control_of(folder) as control:
                assert "orders" in [topic["name"] for topic in control.topics()]
        finally:
            done = highwater("down", "--delete", "--dir", str(folder))
        assert f"its znodes stay in the ZooKeeper at {address}" in done.stdout
