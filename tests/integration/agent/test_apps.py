"""Applications that a caller starts and strikes: the wrong one is caught in its window."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from highwater.agent.client import AgentProcess, Control, ControlError
from tests.integration.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[3] / "examples" / "app"
Start = Callable[[str, dict[str, Any], int], "subprocess.Popen[bytes]"]


@pytest.fixture
def known(control: Control) -> Iterator[dict[str, Any]]:
    """An application of two copies, with inputs that come all the time."""
    for topic in ("orders", "invoices"):
        control.create_topic(topic, partitions=2)
    ends = {"input": "orders", "output": "invoices", "match": "$.order_id"}
    app = control.call("POST", "/v1/apps", {**ends, "copies": 2})
    over = threading.Event()

    def feed() -> None:
        producer = Producer({"bootstrap.servers": control.status()["bootstrap"]})
        number = 0
        while not over.wait(0.005):
            producer.produce("orders", json.dumps({"order_id": number}), str(number % 7))
            producer.poll(0)
            number += 1
        producer.flush(30)

    feeding = threading.Thread(target=feed)
    feeding.start()
    yield app
    over.set()
    feeding.join()
    control.call("DELETE", f"/v1/apps/{app['app']}")
    for topic in ("orders", "invoices"):
        control.delete_topic(topic)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts an example of examples/app as a copy."""
    started: list[subprocess.Popen[bytes]] = []

    def run(name: str, app: dict[str, Any], copy: int) -> subprocess.Popen[bytes]:
        own = {
            "KAFKA_BOOTSTRAP_SERVERS": app["bootstrap"][copy - 1],
            "KAFKA_GROUP_ID": name.replace("/", "-"),
            "KAFKA_TRANSACTIONAL_ID": f"{name.replace('/', '-')}-{copy}",
            "HIGHWATER_INPUT": "orders",
            "HIGHWATER_OUTPUT": "invoices",
        }
        command = [sys.executable, str(EXAMPLES / f"{name}.py")]
        started.append(subprocess.Popen(command, env={**os.environ, **own}))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait(10)


def strike(control: Control, app: dict[str, Any], **entry: Any) -> dict[str, Any]:
    return control.call("POST", f"/v1/apps/{app['app']}/strikes", entry)


def test_one_that_commits_first_is_killed_ahead_and_has_lost(
    control: Control, known: dict[str, Any], start: Start
) -> None:
    process = start("wrong/commits_first", known, 1)
    struck = strike(control, known, name="kill", pid=process.pid, when="ahead")
    assert struck["outcome"] == "hit", struck
    assert process.wait(10) == -9
    assert struck["inputs"]
    stored = read_all(control.status()["bootstrap"], "invoices", 2).values()
    ids = {str(json.loads(value)["order_id"]) for value in stored}
    assert ids.isdisjoint(struck["inputs"])
    assert "kill app, ahead: hit: " in control.events()[-1]["text"]


def test_one_of_two_stands_still_and_wakes_when_the_other_has_taken_over(
    control: Control, known: dict[str, Any], start: Start
) -> None:
    first, second = (start("right/exactly_once", known, copy) for copy in (1, 2))
    struck = strike(
        control, known, name="pause", pid=second.pid, when="behind", copy=2, **{"for": 1}
    )
    assert struck["outcome"] == "hit", struck
    assert -9 not in (first.poll(), second.poll())
    for _ in range(3):  # one whose commit meets the rebalance ends itself, which is right
        if second.poll() is not None:
            second = start("right/exactly_once", known, 2)
        struck = strike(control, known, name="kill", pid=second.pid, when="behind", copy=2)
        if struck["outcome"] == "hit":
            break
    assert struck["outcome"] == "hit", struck
    # its transaction is open for a minute, and hides the outputs that the first one commits
    for _ in range(3):
        if first.poll() is not None:
            first = start("right/exactly_once", known, 1)
        closed = strike(control, known, name="kill", pid=first.pid, when="ahead")
        if closed["outcome"] != "not run" or first.poll() is None:
            break
    assert closed["outcome"] == "closed", closed
    assert first.poll() != -9, "it never gets there, and is not killed"


def test_what_cannot_be_aimed_at_is_told(control: Control, known: dict[str, Any]) -> None:
    silent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        struck = strike(control, known, name="kill", pid=silent.pid, when="behind")
        assert struck == {
            "outcome": "not run", "told": "no commit came from app within 20 s", "inputs": [],
        }  # fmt: skip
        assert silent.poll() is None
    finally:
        silent.kill()
    silent.wait(10)
    ends = {"input": "orders", "output": "invoices", "match": "$.order_id"}
    for path, wrong, told in (
        (
            f"{known['app']}/strikes",
            {"name": "kill", "pid": silent.pid, "when": "ahead"},
            "no proc",
        ),
        (f"{known['app']}/strikes", {"name": "kill", "pid": 1, "when": "soon"}, "'soon' is none"),
        (
            f"{known['app']}/strikes",
            {"name": "kill", "pid": os.getpid(), "when": "ahead", "copy": 3},
            "there is no copy 3: the application has 2",
        ),
        ("77/strikes", {"name": "kill", "pid": 1, "when": "ahead"}, "no application 77; known"),
        ("", {**ends, "input": "orders-typo"}, "orders-typo"),
        ("", {**ends, "match": "order_id"}, "match 'order_id'"),
        ("", {**ends, "copies": 21}, "at most 20 applications"),
    ):
        with pytest.raises(ControlError, match=told):
            control.call("POST", f"/v1/apps/{path}".rstrip("/"), wrong)


def test_under_tls_nothing_of_it_is_seen(tmp_path: Path) -> None:
    with AgentProcess.start({"folder": str(tmp_path), "brokers": 1, "security": "ssl"}) as agent:
        control = Control(agent.control)
        control.create_topic("orders")
        ends = {"input": "orders", "output": "orders", "match": "$.order_id"}
        with pytest.raises(ControlError, match="the cluster speaks ssl: what an application sends"):
            control.call("POST", "/v1/apps", ends)
        control.close()
