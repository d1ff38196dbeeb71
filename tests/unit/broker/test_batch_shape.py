"""The shape of one write over three brokers, counted, whatever the time: a guard of its cost.

A whole simulated cluster takes writes one after the other, acks=all.  What is counted for each is
the same on every machine: calls of functions of the brokers, steps of their tasks, and calls that
would be system calls in the real world.  A bound is what is there today, and a little room; whoever
lowers the cost lowers the bound.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

import highwater
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.producer import Outcome, Producer
from highwater.simulation.cluster import PORT, Shape, SimCluster
from highwater.simulation.workloads.plain_client import SimClient
from highwater.world.sim import Kernel, run_simulation

OURS = tuple(f"{Path(highwater.__file__).parent}/{room}/" for room in ("broker", "base", "kafka"))
"""Of these the brokers are made, and the client."""
SYSTEM = {"send": "send", "send_file": "sendfile", "recv_into": "recv", "append": "write"}
"""Functions of the simulated network and disk, and the system call of each in the real world."""
WORLD = ("/world/sim/network.py", "/world/sim/disk.py")
WARM, WRITES = 10, 40

MOST_CALLS = 645
MOST_STEPS = 11.5
MOST_SYSTEM = {"send": 6.2, "sendfile": 0.1, "recv": 6.3, "write": 3.1}
"""For one write: at the leader, two followers, and the client."""


class Shapes:
    """Counts between `start` and `stop`."""

    def __init__(self) -> None:
        self.calls = self.steps = 0
        self.system: Counter[str] = Counter()

    def start(self) -> None:
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(OURS):
            self.calls += 1
        elif code.co_name in SYSTEM and code.co_filename.endswith(WORLD):
            self.system[SYSTEM[code.co_name]] += 1


@pytest.fixture(scope="module")
def counted() -> Shapes:
    shapes = Shapes()

    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Shape(segment_bytes=1 << 20), nursery)
            for broker_id in cluster.nodes:
                cluster.start(broker_id)
            with trio.fail_after(300):
                while cluster.whole() is not None:
                    await trio.sleep(0.1)
                await writes(kernel, cluster)
            nursery.cancel_scope.cancel()

    async def writes(kernel: Kernel, cluster: SimCluster) -> None:
        host = cluster.simulation.add_host("client")
        world = cluster.simulation.start(host)
        bootstrap = [(node.name, PORT) for node in cluster.nodes.values()]
        await SimClient(world, "admin", bootstrap).create_topic("orders", 1, 3)
        producer = Producer(Cluster(world, bootstrap, "producer"), linger_s=0)
        outcomes: list[Outcome] = []
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            for number in range(WARM + WRITES):
                if number == WARM:
                    shapes.steps = -kernel.steps
                    shapes.start()
                report = lambda d: outcomes.append(d.outcome)  # noqa: E731
                await producer.send("orders", bytes(1000), partition=0, report=report)
                await producer.flush()
            shapes.stop()
            shapes.steps += kernel.steps
            running.cancel_scope.cancel()
        assert outcomes == [Outcome.ACKED] * (WARM + WRITES)

    run_simulation(1, main)
    return shapes


def test_calls_of_functions(counted: Shapes) -> None:
    each = counted.calls / WRITES
    assert MOST_CALLS * 0.5 < each <= MOST_CALLS, f"{each:.0f} calls for a write"


def test_steps_of_tasks(counted: Shapes) -> None:
    each = counted.steps / WRITES
    assert MOST_STEPS * 0.5 < each <= MOST_STEPS, f"{each:.1f} steps for a write"


def test_system_calls(counted: Shapes) -> None:
    each = {name: counted.system[name] / WRITES for name in MOST_SYSTEM}
    assert each["write"] >= 3, "each replica writes"
    assert {n: each[n] for n, most in MOST_SYSTEM.items() if each[n] > most} == {}, each
