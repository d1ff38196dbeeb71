"""Properties of a broker as a whole, in a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from highwater.kafka.config import Config
from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios import Scenario, play
from highwater.simulation.scenarios.script import Stage


@dataclass(frozen=True, slots=True)
class With(Shape):
    """A cluster of brokers that have this property."""

    name: str = ""
    value: object = None

    def config(self, broker_id: int, host: str) -> Config:
        made = Shape.config(self, broker_id, host)
        return replace(made, **{self.name: self.value})  # type: ignore[arg-type]


def played(name: str, value: object, course: object) -> None:
    shape = With(brokers=2, min_isr=1, name=name, value=value)
    found = play(Scenario(name, "", shape, course), 1)  # type: ignore[arg-type]
    assert found.ok, (found.problem, found.violation)


def test_a_broker_tells_its_rack() -> None:
    async def course(stage: Stage) -> None:
        await stage.start(1, 2)
        nodes = stage.cluster.simulation.zookeeper.ensemble.nodes
        stage.check(b'"rack":"r7"' in nodes["/brokers/ids/1"].data, "no rack is registered")

    played("broker_rack", "r7", course)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cleaner_can_be_switched_off(enabled: bool) -> None:
    async def course(stage: Stage) -> None:
        await stage.start(1, 2)
        broker = stage.cluster.nodes[1].broker
        assert broker is not None
        stage.check(bool(broker.cleaner.tasks) == enabled, f"{broker.cleaner.tasks} cleaners")

    played("log_cleaner_enable", enabled, course)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_broker_that_stops_hands_over_its_leaders_first(enabled: bool) -> None:
    async def course(stage: Stage) -> None:
        await stage.start(2, 1)
        stage.cluster.stop(2)
        await stage.until(lambda: stage.leader() == 1, "broker 1 leads")
        lines = stage.cluster.trace.last(100_000)
        asked = any("broker-1." in line and "broker 2 shuts down" in line for line in lines)
        stage.check(asked == enabled, f"the controller was asked: {asked}")

    played("controlled_shutdown_enable", enabled, course)
