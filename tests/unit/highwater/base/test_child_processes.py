"""Processes that never outlive their supervisor, and signals that never reach a stranger."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highwater.child_processes import Child, Pid, StartError, kill_listed
from highwater.cluster.port_shares import SETTING, share_of_ports
from highwater.cluster.ports import (
    PortInUse,
    free_ports,
    is_free,
    port_range,
    require_free,
)
from highwater.cluster.processes import zookeeper_process as zookeeper
from tests.waiting import eventually

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


def test_a_pid_with_another_start_time_is_a_stranger(tmp_path: Path) -> None:
    child = Child("x", SLEEP, output=tmp_path / "out", cwd=tmp_path)
    stranger = Pid(child.pid.pid, "1")
    assert child.pid.alive()
    assert not stranger.alive()
    assert not stranger.signal(signal.SIGKILL)
    state = {"processes": {"x": stranger.as_json()}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    kill_listed(tmp_path / "state.json")
    assert child.running
    state = {"processes": {"x": child.pid.as_json()}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    kill_listed(tmp_path / "state.json")
    assert child.wait(5) == -signal.SIGKILL
    assert not child.pid.alive()


def test_one_that_stands_still_is_told_from_one_that_has_ended(tmp_path: Path) -> None:
    child = Child("x", SLEEP, output=tmp_path / "out", cwd=tmp_path)
    assert not child.paused
    child.signal(signal.SIGSTOP)
    eventually(lambda: child.paused, "it stands still")
    assert child.pid.stopped()
    assert child.pid.alive()
    assert not Pid(child.pid.pid, "1").stopped(), "a stranger"
    os.kill(child.pid.pid, signal.SIGKILL)
    eventually(lambda: not child.pid.alive(), "a zombie does not run, before it is waited for")
    assert not child.paused
    assert child.wait(5) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from highwater.child_processes import Child
child = Child("x", {SLEEP!r}, output=Path({str(tmp_path)!r}) / "out", cwd=Path({str(tmp_path)!r}))
print(child.pid.pid, child.pid.started, flush=True)
time.sleep(60)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    pid, started = supervisor.stdout.readline().split()
    grandchild = Pid(int(pid), started)
    assert grandchild.alive()
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    deadline = time.monotonic() + 5
    while grandchild.alive() and time.monotonic() < deadline:
        os.sched_yield()
    assert not grandchild.alive()


def test_a_program_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="zk cannot be started: /nowhere/java"):
        Child("zk", ["/nowhere/java"], output=tmp_path / "out", cwd=tmp_path)


def test_last_words_are_of_this_start(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("an earlier failure\n")
    command = [sys.executable, "-I", "-S", "-c", "print('why it ended'); print()"]
    child = Child("x", command, output=output, cwd=tmp_path)
    assert child.wait(10) == 0
    assert child.last_words() == "why it ended"


def test_a_port_that_is_meant_for_something_else_is_not_given() -> None:
    """`up --port 20716` gave 20716 to a broker's inner listener as well, where the search began."""
    last = free_ports(1)[0]
    wanted = range(last + 1, last + 4)
    assert not set(free_ports(10, without=wanted)) & set(wanted)


def test_free_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert not set(ports) & set(free_ports(20)), "a client of a cluster before may try them still"
    assert len(set(ports)) == 20
    assert all(port < 32768 for port in ports)


def test_runs_side_by_side_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [share_of_ports(part, 2) for part in range(2)]
    monkeypatch.setenv(SETTING, halves[0])
    first = free_ports(10)
    monkeypatch.setenv(SETTING, halves[1])
    second = free_ports(10)
    (low, between), (then, end) = (port_range({SETTING: half}) for half in halves)
    assert between == then
    assert all(low <= port < between for port in first)
    assert all(then <= port < end for port in second)


def test_a_range_of_ports_that_is_none_is_named() -> None:
    for wrong in ("9092", "30000-20000", "80-90", "20000-x"):
        with pytest.raises(StartError, match=f"HIGHWATER_PORTS is '{wrong}'"):
            port_range({SETTING: wrong})


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        port = sock.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(PortInUse, match=f"port {port} .broker 1. is in use"):
            require_free(port, "broker 1", "stop it")


def test_no_java_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="install Java 17"):
        zookeeper.find_java({"PATH": str(tmp_path)})
    with pytest.raises(StartError, match="correct JAVA_HOME"):
        zookeeper.find_java({"JAVA_HOME": str(tmp_path)})


def test_a_setting_without_jars_is_refused_and_one_with_jars_wins(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="holds no ZooKeeper jars"):
        zookeeper.find_jars({"HIGHWATER_ZOOKEEPER_HOME": str(tmp_path)})
    (tmp_path / "lib").mkdir()
    for name in ("zookeeper-3.9.3.jar", "zookeeper-jute-3.9.3.jar", "slf4j-api-2.0.jar"):
        (tmp_path / "lib" / name).touch()
    (tmp_path / "lib" / "zookeeper-prometheus-metrics-3.9.3.jar").touch()
    found = zookeeper.find_jars({"HIGHWATER_ZOOKEEPER_HOME": str(tmp_path)})
    assert found.class_path.count(os.pathsep) == 2
    assert str(tmp_path) in found.where


def test_without_maven_pyspark_has_zookeeper_and_else_both_remedies_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIGHWATER_CACHE", str(tmp_path))
    nothing = {"PATH": str(tmp_path)}
    if importlib.util.find_spec("pyspark"):
        assert "PySpark" in zookeeper.find_jars(nothing).where
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StartError, match=r"no mvn: install Maven .*set HIGHWATER_ZOOKEEPER_HOME"):
        zookeeper.find_jars(nothing)
