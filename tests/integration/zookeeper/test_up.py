"""`highwater up --zookeeper embedded`: no Java, the same faults, and a folder that remembers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from highwater.agent.client import Control
from highwater.child_processes import StartError
from highwater.cli.cluster_folder import control_url
from highwater.cluster.ports import free_ports
from highwater.cluster.processes import zookeeper_process as zookeeper

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def highwater(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "highwater.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def test_it_needs_no_java_and_keeps_what_was_there(tmp_path: Path) -> None:
    port, folder = free_ports(3)[0], tmp_path / "cluster"
    # programs that are needed, and no java among them
    (tmp_path / "bin").mkdir()
    bare = {**os.environ, "PATH": str(tmp_path / "bin")}
    bare.pop("JAVA_HOME", None)
    up = ("up", "--detach", "--brokers", "2", "--port", str(port), "--dir", str(folder))
    assert shutil.which("java", path=bare["PATH"]) is None
    done = highwater(*up, env=bare)
    assert done.returncode != 0
    assert "no Java found" in done.stderr
    done = highwater(*up, "--zookeeper", "embedded", env=bare)
    assert done.returncode == 0, done.stderr
    try:
        url = control_url(folder)
        assert url is not None
        control = Control(url)
        control.create_topic("orders", partitions=1)
        before = control.topic("orders")["partitions"][0]["leader_epoch"]
        fault = control.fault("kill", "zookeeper")
        control.end_fault(fault["id"])
        control.fault("expire_session", "broker-1")
        control.fault("swap_leader", "orders-0")
        control.wait("healthy", 60)
        assert control.topic("orders")["partitions"][0]["leader_epoch"] > before
        control.close()
        assert highwater("down", "--dir", str(folder)).returncode == 0
        wrong = highwater(*up, "--zookeeper", "java")
        assert "has the data of the embedded ZooKeeper: use --zookeeper embedded" in wrong.stderr
        assert highwater(*up, env=bare).returncode == 0, "it goes on with what the folder has"
        url = control_url(folder)
        assert url is not None
        control = Control(url)
        assert "orders" in [topic["name"] for topic in control.topics()]
        control.close()
    finally:
        highwater("down", "--dir", str(folder))


def test_a_folder_of_javas_zookeeper_stays_javas(tmp_path: Path) -> None:
    assert zookeeper.chosen(tmp_path, "") == "java"
    assert zookeeper.chosen(tmp_path, "embedded") == "embedded"
    (tmp_path / "data" / "version-2").mkdir(parents=True)
    assert zookeeper.chosen(tmp_path, "") == "java"
    with pytest.raises(StartError, match="the data of the java ZooKeeper: use --zookeeper java"):
        zookeeper.chosen(tmp_path, "embedded")
