"""The brokers of a new cluster are forks of one process, and behave as after an exec."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from highwater.agent.client import AgentProcess, Control
from highwater.cluster.processes.forked_brokers import Forks
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess.start({"folder": str(tmp_path / "cluster")}) as made:
        yield made


def brokers(agent: AgentProcess) -> dict[str, psutil.Process]:
    members = Control(agent.control).status()["members"]
    return {name: psutil.Process(of["pid"]) for name, of in members.items() if name != "zookeeper"}


def test_each_is_its_agents_child_and_looks_like_itself(
    agent: AgentProcess, tmp_path: Path
) -> None:
    found = brokers(agent)
    assert len(found) == 3
    for name, process in found.items():
        folder = tmp_path / "cluster" / name
        command = process.cmdline()
        assert command[-5:] == [
            "highwater.broker", "--config", str(folder / "server.properties"), "--profile", "test"
        ]  # fmt: skip
        assert process.ppid() == agent.pid
        assert os.getsid(process.pid) == process.pid
        assert Path(process.cwd()) == folder
        assert "started broker" in (folder / "output.log").read_text()
        memory = process.memory_full_info()
        assert memory.pss < 0.8 * memory.rss, "it has memory in common with the others"
    left = psutil.Process(agent.pid).children(recursive=True)
    assert [p for p in left if any("broker_forks" in w for w in p.cmdline())] == [], "it has ended"


def test_a_restart_is_an_exec_and_exit_codes_are_known(agent: AgentProcess) -> None:
    control = Control(agent.control)
    before = brokers(agent)["broker-2"]
    words = before.cmdline()
    fault = control.fault("stop", "broker-2")
    assert "0" in fault["effect"], fault["effect"]
    control.end_fault(fault["id"])
    after = brokers(agent)["broker-2"]
    assert after.pid != before.pid
    assert after.cmdline() == words, "as `ps` has it, it is no other"
    found = brokers(agent)["broker-1"]
    found.send_signal(signal.SIGKILL)

    def told() -> str:
        return "\n".join(str(event["text"]) for event in control.events())

    eventually(lambda: "broker-1 ended with code -9" in told(), "it is told", told)


def test_a_killed_agent_leaves_no_broker(agent: AgentProcess) -> None:
    found = list(brokers(agent).values())
    os.kill(agent.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(found, timeout=20)
    assert alive == []
    assert len(gone) == 3


def test_one_that_has_ended_gives_none(tmp_path: Path) -> None:
    command = ["python", "-m", "highwater.broker", "--config", "x" * 200]
    forks = Forks(command)
    assert forks.ready()
    forks._popen.kill()
    forks._popen.wait()
    with (tmp_path / "output").open("wb") as output:
        assert forks.fork(command, output.fileno(), tmp_path, {}) is None
    forks.close()
