"""`highwater up` is an agent: `fault` breaks its cluster, a second `up` mends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from highwater.agent.client import Control, ControlError
from highwater.agent.control_token import token_of
from highwater.cluster.ports import free_ports
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def highwater(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "highwater.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("up") / "cluster"
    first = free_ports(10)[0]
    try:
        done = highwater(
            "up",
            "--detach",
            f"--port={first}",
            f"--dir={found}",
            f"--control={first + 9}",
            "--control-host=0.0.0.0",
            "--set=num.partitons=4",
        )
        assert done.returncode == 0, done.stderr
        assert "num.partitons: unknown property, ignored; did you mean num.partitions?" in (
            done.stdout
        )
        assert f"control API        http://127.0.0.1:{first + 9}/v1/status" in done.stdout
        assert f"bootstrap servers  127.0.0.1:{first},127.0.0.1:{first + 1}" in done.stdout
        written = done.stdout + "".join(path.read_text() for path in found.rglob("*.log"))
        assert token_of(found) not in written
        with pytest.raises(ControlError, match="Authorization: Bearer TOKEN"):
            Control(state(found)["control"]).status()
        yield found
    finally:
        ended = highwater("down", f"--dir={found}")
    assert ended.stdout.strip() == "stopped"
    stopped = [found / f"broker-{n}" / "data" / ".kafka_cleanshutdown" for n in (1, 2, 3)]
    assert all(path.exists() for path in stopped), "each broker had the time to stop in order"


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def test_up_again_mends_a_cluster_whose_broker_died(folder: Path) -> None:
    os.kill(state(folder)["processes"]["broker-2"]["pid"], signal.SIGKILL)
    control = Control(state(folder)["control"], token_of(folder))
    eventually(
        lambda: any("broker-2 ended with code -9" in e["text"] for e in control.events()),
        "the end is told",
        control.events,
    )
    assert "broker-2    is down" in highwater("status", f"--dir={folder}").stdout
    again = highwater("up", f"--dir={folder}")
    assert again.returncode == 0, again.stderr
    assert "is whole after" in again.stdout
    assert "broker-2 was down" in again.stdout
    assert highwater("status", f"--dir={folder}").returncode == 0
    whole = highwater("up", f"--dir={folder}")
    assert (whole.returncode, "a cluster is running in" in whole.stderr) == (1, True)


def test_each_command_says_the_effect_that_was_seen(folder: Path) -> None:
    def fault(*words: str) -> str:
        done = highwater("fault", *words, f"--dir={folder}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    Control(state(folder)["control"], token_of(folder)).create_topic("orders")
    assert "ended by SIGKILL, leading" in fault("kill", "leader of orders-0", "--as", "L")
    assert "kill broker-" in fault("list")
    assert "after" in fault("wait", "leader", "of", "orders-0", "is", "not", "$L")
    assert "serves after" in fault("start", "$L")
    assert fault("list") == ""
    for words, effect in (
        (["cut", "--from=broker-1", "--to=zookeeper"], "stopped"),
        (["latency", "broker-1", "--latency=50", "--jitter=20"], "delayed"),
    ):
        begun = fault(*words, "--within=10")
        assert "has met" in begun
        assert effect in fault("end", begun.split("fault end ")[1].split("`")[0])
    assert "connections" in fault("reset_peer", "controller")
    held = fault("hold", "--api=Fetch", "--side=response", "--count=0")
    number = held.split("fault end ")[1].split("`")[0]
    assert "held" in fault("end", number)
    assert "the leader moved from" in fault("swap_leader", "orders-0")
    assert "stands still" in fault("pause", "3")
    assert "broker-3    is paused" in highwater("status", f"--dir={folder}").stdout
    assert fault("mend") == "mended\n"


def test_a_fault_without_traffic_is_on_and_said_to_be(folder: Path) -> None:
    done = highwater("fault", "hold", "--api=EndTxn", f"--dir={folder}")
    assert done.returncode == 0, done.stderr
    on, end = done.stdout.splitlines()
    assert on == "hold EndTxn request *->*: it is on, and no traffic has met it yet"
    number = end.removeprefix("`highwater fault end ").removesuffix("` ends it")
    listed = highwater("fault", "list", f"--dir={folder}").stdout
    assert listed.split()[0] == number
    control = Control(state(folder)["control"], token_of(folder))
    for words in (["hold", "--api=EndTxn"], ["latency", "broker-1", "--latency=5"]):
        done = highwater("fault", *words, "--for=3", f"--dir={folder}")
        assert done.returncode == 0, done.stderr
        assert "it goes on until " in done.stdout
    highwater("fault", "mend", f"--dir={folder}")
    control.fault("pause", "broker-3")
    for verb in ("disk_full", "stop", "restart"):
        with pytest.raises(ControlError, match="broker-3 is paused: resume it first"):
            control.fault(verb, "broker-3")
    highwater("fault", "mend", f"--dir={folder}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kil", "broker-1"], "no verb 'kil'"),
        (["cut", "--from=1", "--to=zookeper"], "cut: to: no target 'zookeper'"),
        (["resume", "broker-1"], "resume: broker-1 is not paused; what is: nothing"),
        (["end", "77"], "no fault 77; open now: none"),
        (["wait", "helthy"], "until 'helthy' is not understood"),
        (["hold", "--api=EndTxn", "--within=0.1"], "no traffic has met it within 0.1 s"),
        (["hold", "--api=EndTxn", "--for=0.1"], "it met no traffic, and is over"),
    ],
)
def test_what_had_no_effect_is_one_line_and_exit_code_1(
    folder: Path, words: list[str], said: str
) -> None:
    done = highwater("fault", *words, f"--dir={folder}")
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    highwater("fault", "mend", f"--dir={folder}")


def test_no_cluster_is_one_line(tmp_path: Path) -> None:
    done = highwater("fault", "list", f"--dir={tmp_path}")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no cluster runs in {tmp_path}: `highwater up --detach` starts one" in done.stderr
