"""The members of a new cluster are forks of one process, and behave as after an exec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from highwater.agent.client import AgentProcess, Control
from highwater.cluster.processes.forked_members import Forks
from tests.waiting import eventually

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
    with (tmp_path / "output").open("wb") as output:
        assert mother.fork(command, output.fileno(), tmp_path, {}) is None
    forks.close()


def test_what_begins_it_loads_no_loop() -> None:
    """It is to load beside the rest of the agent, and so has to begin before that."""
    heavy = "trio", "kafka", "kazoo", "highwater.kafka.config"
    program = "import sys, highwater.cluster.processes.forked_members; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert set(heavy) & set(told.stdout.split()) == set()
