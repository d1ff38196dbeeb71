"""An agent's own life: it says why it cannot start, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from highwater.agent.client import AgentProcess, Control, ControlError
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "the settings are not one line of JSON"),
        ('{"folder": "x", "broker": 1}', "the settings has no 'broker'; it takes folder"),
        (
            '{"folder": "x", "brokers": 1, "properties": {"offsets.topic.replication.factor": 3}}',
            "offsets.topic.replication.factor=3, and there are to be 1 brokers",
        ),
    ],
)
def test_a_start_that_cannot_be_is_one_line(line: str, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "highwater.agent"],
        input=line + "\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert said in told["error"]["message"]
    assert done.stderr == ""


def test_it_ends_with_its_parent_and_leaves_no_process(tmp_path: Path) -> None:
    parent = (
        "import sys, time; from highwater.agent.client import AgentProcess;"
        f"a = AgentProcess.start({{'folder': {str(tmp_path / 'cluster')!r}, 'brokers': 1}});"
        "print(a.control, a._process.pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    control, pid = process.stdout.readline().split()
    children = [psutil.Process(int(pid)), *psutil.Process(int(pid)).children(recursive=True)]
    assert len(children) == 3, "the agent, ZooKeeper, one broker"
    assert Control(control).status()["members"]["broker-1"]["state"] == "up"
    process.kill()
    process.wait()
    process.stdout.close()
    _, left = psutil.wait_procs(children, timeout=30)
    assert left == []


def test_a_second_agent_of_a_folder_and_unknown_properties_are_told(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path), "brokers": 1, "properties": {"num.partitons": 4}}
    with AgentProcess.start(settings) as first:
        assert first.warnings == [
            "num.partitons: unknown property, ignored; did you mean num.partitions?"
        ]
        with pytest.raises(ControlError, match="a cluster is running in"):
            AgentProcess.start(settings)
        control = Control(first.control)
        control.fault("kill", "zookeeper")
        began = time.monotonic()
    assert time.monotonic() - began < 10, "an end does not wait for a ZooKeeper that is dead"
    with pytest.raises(ControlError, match="does not answer") as error:
        control.status()
    assert error.value.kind == "unreachable"


def test_what_ends_by_itself_is_told(tmp_path: Path) -> None:
    with AgentProcess.start({"folder": str(tmp_path), "brokers": 1}) as agent:
        control = Control(agent.control)
        os.kill(control.status()["members"]["broker-1"]["pid"], signal.SIGKILL)
        eventually(
            lambda: [e for e in control.events() if "broker-1 ended with code -9" in e["text"]],
            "the end is told",
            control.events,
        )
        assert control.status()["members"]["broker-1"]["state"] == "down"
        control.mend()
        assert control.status()["members"]["broker-1"]["state"] == "up"
