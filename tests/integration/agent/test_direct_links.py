"""Nothing passes the agent until a fault touches a link; and then everything, without a break."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from highwater.agent.client import AgentProcess, Control
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lends sockets"),
]


class Traffic:
    """One producer and one consumer of a topic, in a thread of their own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._ends = threading.Event()
        self.sent = 0
        self.acknowledged: list[int] = []
        self.read: dict[int, list[int]] = {}
        self.wrong: list[str] = []
        self.disconnects = 0
        told = {"stats_cb": self._told, "statistics.interval.ms": 100}
        common = {"bootstrap.servers": bootstrap, "error_cb": self._wrong, "log_level": 3, **told}
        self._producer = Producer({**common, "linger.ms": 0})
        first = {"group.id": "readers", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**common, **first})
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _told(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.disconnects = max(self.disconnects, sum(b.get("disconnects", 0) for b in brokers))

    def _wrong(self, error: Any) -> None:
        self.wrong.append(str(error))

    def _answered(self, error: Any, message: Any) -> None:
        if error:
            self._wrong(error)
        else:
            self.acknowledged.append(int(message.value()))

    def _run(self) -> None:
        while not self._ends.is_set() or sum(map(len, self.read.values())) < self.sent:
            if not self._ends.is_set():
                self._producer.produce(self._topic, b"%d" % self.sent, on_delivery=self._answered)
                self.sent += 1
            self._producer.poll(0)
            for message in self._consumer.consume(100, 0.002):
                if not message.error():
                    values = self.read.setdefault(message.partition(), [])
                    values.append(int(message.value()))
            if self.wrong:
                return

    def flows(self) -> None:
        """Returns once more has been read."""
        before, wanted = self.sent, self.sent + 100

        def read() -> bool:
            return any(values[-1] >= wanted for values in self.read.values())

        eventually(lambda: self.wrong or read(), f"{before} were sent", self._state, 30)

    def _state(self) -> str:
        return f"{self.sent} sent, {len(self.acknowledged)} acknowledged, {self.wrong}"

    def end(self) -> None:
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), self._state()
        self._producer.flush(30)
        self._consumer.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess.start({"folder": str(tmp_path / "cluster")}) as started:
        yield started


def test_where_there_can_be_no_door_links_are_proxied_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "cluster" / "broker-1" / "link-door").mkdir(parents=True)
    settings = {"folder": str(tmp_path / "cluster"), "brokers": 1}
    with AgentProcess.start(settings) as agent:
        Control(agent.control).create_topic("orders", partitions=1)
        traffic = Traffic(agent.bootstrap, "orders")
        try:
            traffic.flows()
            assert clients_at(agent) >= 2
        finally:
            traffic.end()


def clients_at(agent: AgentProcess) -> int:
    """How many connections of clients the agent carries."""
    ports = {int(entry.rpartition(":")[2]) for entry in agent.bootstrap.split(",")}
    open_ = psutil.Process(agent.pid).net_connections("tcp")
    return sum(c.status == "ESTABLISHED" and c.laddr.port in ports for c in open_)


def test_clients_notice_nothing_when_the_first_fault_comes(agent: AgentProcess) -> None:
    control = Control(agent.control)
    control.create_topic("orders", partitions=3)
    traffic = Traffic(agent.bootstrap, "orders")
    try:
        traffic.flows()
        assert clients_at(agent) == 0
        slow = control.fault("latency", "broker-1", to="clients", latency=1)
        assert clients_at(agent) >= 5
        traffic.flows()
        assert "delayed" in control.end_fault(slow["id"])["effect"]
        cut = control.fault("cut", "leader of orders-0", to="follower of orders-0")
        eventually(lambda: control.call("GET", f"/v1/faults/{cut['id']}")["met"], "it met traffic")
        control.end_fault(cut["id"])
        traffic.flows()
        assert traffic.disconnects == 0
    finally:
        traffic.end()
        control.close()
    assert not traffic.wrong
    all_ = list(range(traffic.sent))
    assert sorted(traffic.acknowledged) == all_
    assert sorted(n for values in traffic.read.values() for n in values) == all_
    for values in traffic.read.values():
        assert values == sorted(values)


def test_a_broker_that_was_killed_has_its_ports_again(agent: AgentProcess) -> None:
    control = Control(agent.control)
    control.create_topic("orders", partitions=3)
    killed = control.fault("kill", "broker-1")
    control.end_fault(killed["id"])
    control.wait("healthy")
    traffic = Traffic(agent.bootstrap, "orders")
    try:
        traffic.flows()
        assert clients_at(agent) == 0
        paused = control.fault("pause", "broker-1")
        assert clients_at(agent) >= 5
        cut = control.fault("cut", "clients", to="broker-1")
        control.end_fault(paused["id"])
        eventually(lambda: control.call("GET", f"/v1/faults/{cut['id']}")["met"], "it met traffic")
        control.end_fault(cut["id"])
        traffic.flows()
    finally:
        traffic.end()
        control.close()
