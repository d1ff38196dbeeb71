"""An answered change of a topic (made, grown, configured, deleted) shows on every broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from highwater.simulation.cluster import PORT, Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage
from highwater.simulation.workloads.plain_client import SimClient

LATE_S = 0.2
THREE = Shape(brokers=3, min_isr=2, lag_ms=3000)
BROKER_1 = ("broker-1", PORT)


async def _late_news(stage: Stage) -> None:
    """Delays the news from the controller and ZooKeeper to broker 3."""
    await stage.start(1, 2, 3)
    simulation = stage.cluster.simulation
    third = stage.cluster.nodes[3].host
    for source in (stage.cluster.nodes[1].host, simulation.zookeeper.host):
        simulation.fabric.link(source, third).delay_s = (LATE_S, LATE_S)


def _partitions(stage: Stage, broker: int, topic: str) -> int:
    services = stage.cluster.nodes[broker].services
    return len(services.metadata.partitions_of(topic)) if services is not None else -1


async def _takes(call: Callable[[], Awaitable[None]]) -> float:
    began = trio.current_time()
    await call()
    return trio.current_time() - began


async def topics(stage: Stage) -> None:
    await _late_news(stage)
    await stage.client.create_topic("made", 2, 3)
    stage.check(_partitions(stage, 3, "made") == 2, "broker 3 does not know the new topic")
    await stage.client.grow_topic("made", 5, 5000)
    stage.check(_partitions(stage, 3, "made") == 5, "broker 3 does not know the new partitions")
    await stage.client.delete_topic("made")
    stage.check(_partitions(stage, 3, "made") == 0, "broker 3 still knows the deleted topic")


async def configs(stage: Stage) -> None:
    await _late_news(stage)
    client = stage.client
    for broker in (1, 2):
        value = str(1000 + broker)
        await client.alter_topic((f"broker-{broker}", PORT), TP.topic, "max.message.bytes", value)
        for other in (1, 2, 3):
            services = stage.cluster.nodes[other].services
            stage.check(services is not None, "a broker is gone")
            assert services is not None
            log = services.replicas.partitions[TP].log
            stage.check(
                log is not None and log.config.max_message_bytes == int(value),
                f"broker {other} goes by the old configuration",
            )


async def silent_broker(stage: Stage) -> None:
    """A paused broker delays an answer for a second, however long its client would wait."""
    await stage.start(1, 2, 3)
    client = SimClient(stage.new_world("admin"), "admin", [BROKER_1])
    stage.cluster.freeze(3)
    grown = await _takes(lambda: client.grow_topic(TP.topic, 2, 60_000))
    stage.check(0.9 < grown < 2, f"the new partition took {grown:.1f} s")
    changed = await _takes(lambda: client.alter_topic(BROKER_1, TP.topic, "flush.ms", "9"))
    stage.check(changed < 2, f"the change took {changed:.1f} s")
    stage.cluster.thaw(3)
    await stage.whole()


async def cut_broker(stage: Stage) -> None:
    """A broker that ZooKeeper cannot reach delays no client for more than five seconds."""
    await stage.start(1, 2, 3)
    fabric, third = stage.cluster.simulation.fabric, stage.cluster.nodes[3].host
    zookeeper = stage.cluster.simulation.zookeeper.host
    fabric.cut(zookeeper, third)
    fabric.cut(third, zookeeper)
    changed = await _takes(lambda: stage.client.alter_topic(BROKER_1, TP.topic, "flush.ms", "9"))
    stage.check(changed < 5.5, f"the change took {changed:.1f} s")
    stage.heal()
    await stage.whole()


SCENARIOS = (
    Scenario("topics-everywhere", "news of topics comes late to one broker", THREE, topics),
    Scenario("configs-everywhere", "a topic's change comes late to one broker", THREE, configs),
    Scenario("silent-broker", "a paused broker holds up no administrator", THREE, silent_broker),
    Scenario("cut-broker", "a broker without ZooKeeper holds up none either", THREE, cut_broker),
)
