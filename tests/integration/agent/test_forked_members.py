"""The members of a new cluster are forks of one process, and behave as after an exec."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio

from highwater.agent.client import AgentProcess, Control
from highwater.cluster.processes import forked_members
from highwater.cluster.processes.forked_members import Forks
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings
from tests.waiting import eventually

PR_SET_CHILD_SUBREAPER = 36

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess.start({"folder": str(tmp_path / "cluster")}) as made:
        yield made


def members(agent: AgentProcess) -> dict[str, psutil.Process]:
    found = Control(agent.control).status()["members"]
    return {name: psutil.Process(of["pid"]) for name, of in found.items()}


def words(process: psutil.Process) -> list[str]:
    """Its command; what follows is room that another one would have needed."""
    return " ".join(process.cmdline()).split()


def test_each_is_its_agents_child_and_looks_like_itself(
    agent: AgentProcess, tmp_path: Path
) -> None:
    found = members(agent)
    assert sorted(found) == ["broker-1", "broker-2", "broker-3", "zookeeper"]
    for name, process in found.items():
        folder = tmp_path / "cluster" / name
        kind = ["highwater.broker", "--config", str(folder / "server.properties")]
        if name == "zookeeper":
            kind = ["highwater.zookeeper", "--data", str(folder / "data")]
        assert words(process)[1:6] == ["-I", "-m", *kind]
        assert process.ppid() == agent.pid
        assert os.getsid(process.pid) == process.pid
        assert Path(process.cwd()) == folder
        says = "serves at" if name == "zookeeper" else "started broker"
        assert says in (folder / "output.log").read_text()
        memory = process.memory_full_info()
        assert memory.pss < 0.8 * memory.rss, "it has memory in common with the others"
    left = psutil.Process(agent.pid).children(recursive=True)
    assert sorted(p.pid for p in left) == sorted(p.pid for p in found.values()), "they alone"


def test_zookeeper_keeps_no_code_of_brokers(agent: AgentProcess) -> None:
    """What each broker writes to is copied for it, and so must be nobody's in the end."""
    found = members(agent)
    zookeeper = found.pop("zookeeper").memory_full_info().rss
    assert zookeeper < 0.7 * min(p.memory_full_info().rss for p in found.values())


def test_a_restart_is_an_exec_and_exit_codes_are_known(agent: AgentProcess) -> None:
    control = Control(agent.control)
    before = members(agent)["broker-2"]
    command = words(before)
    fault = control.fault("stop", "broker-2")
    assert "0" in fault["effect"], fault["effect"]
    control.end_fault(fault["id"])
    after = members(agent)["broker-2"]
    assert after.pid != before.pid
    assert after.cmdline() == command, "as `ps` has it, it is no other"
    found = members(agent)["broker-1"]
    found.send_signal(signal.SIGKILL)

    def told() -> str:
        return "\n".join(str(event["text"]) for event in control.events())

    eventually(lambda: "broker-1 ended with code -9" in told(), "it is told", told)


def test_a_killed_agent_leaves_no_member(agent: AgentProcess) -> None:
    found = list(members(agent).values())
    os.kill(agent.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(found, timeout=20)
    assert alive == []
    assert len(gone) == 4


@pytest.mark.parametrize("kind", ["broker", "zookeeper"])
def test_one_that_has_ended_gives_none(tmp_path: Path, kind: str) -> None:
    command = ["python", "-m", f"highwater.{kind}", "--config", "x" * 200]
    forks = Forks(command)
    mother = forks.brokers if kind == "broker" else forks.zookeeper
    assert mother.ready()
    process = psutil.Process(forks._popen.pid)
    for one in (*process.children(), process):
        one.kill()
    forks._popen.wait()
    assert mother.fork(command, tmp_path / "output", tmp_path, {}) is None
    forks.close()


def test_one_that_does_not_become_the_agents_child_ends_at_once(tmp_path: Path) -> None:
    """As where a process between takes orphans in: it is started by exec then."""
    command = ["python", "-m", "highwater.zookeeper", "--data", str(tmp_path / "data")]
    forks = Forks(command)
    assert forks.zookeeper.ready()
    began = time.monotonic()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    try:
        assert forks.zookeeper.fork(command, tmp_path / "output", tmp_path, {}) is None
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    assert time.monotonic() - began < 5
    assert not (tmp_path / "data").exists()
    forks.close()


async def test_the_loop_runs_on_while_a_member_is_forked(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "cluster", quick_end=True)
    forked_members.begin("highwater", "process", settings.folder, settings.profile)
    (forks,) = forked_members._begun
    assert forks.brokers._socket.recv(64, socket.MSG_PEEK), "it is ready"
    forks._popen.send_signal(signal.SIGSTOP)
    asked = settings.folder / "broker-1" / "output.log"

    async def wake() -> None:
        while not asked.exists():
            await trio.sleep(0.01)
        forks._popen.send_signal(signal.SIGCONT)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wake)
        async with process_cluster(settings) as cluster:
            kinds = {type(child.popen) for child in cluster._children.values()}
    assert kinds == {forked_members.Forked}, "none had to be started by exec"


def test_what_begins_it_loads_no_loop() -> None:
    """It is to load beside the rest of the agent, and so has to begin before that."""
    heavy = "trio", "kafka", "kazoo", "psutil", "highwater.kafka.config"
    program = "import sys, highwater.cluster.processes.forked_members; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert set(heavy) & set(told.stdout.split()) == set()
