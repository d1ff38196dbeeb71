"""Topics that are deleted and made again: nothing of the former life reaches the next one."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio

from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage
from highwater.simulation.workloads.plain_client import Failed


class _Undone:
    """The chance that lets a power loss undo every change that was not synced."""

    def random(self) -> float:
        return 0.0

    def randint(self, least: int, most: int) -> int:
        return least


async def former_life(stage: Stage, cut_s: float) -> None:
    """A leader's new ISR is on its way to ZooKeeper while its topic is deleted and made again: the
    znode has the same version in both lives.  The topic is not gone before the write has arrived.
    """
    await stage.start(1, 2, 3, controller=3)
    await stage.send("of the former life")
    fabric, zookeeper = stage.cluster.simulation.fabric, stage.cluster.simulation.zookeeper
    fabric.cut(stage.cluster.nodes[1].host, zookeeper.host)
    stage.cut(1, 2)
    await stage.send("without broker 2", acks=1)
    node = stage.cluster.nodes[1]
    partition = node.services.replicas.partitions[TP] if node.services is not None else None
    assert partition is not None
    await stage.until(lambda: partition.isr.pending == (1, 3), "the leader has written a new ISR")
    stage.check(stage.isr() == (1, 2, 3), "its write has arrived")
    await stage.insist(lambda: stage.client.delete_topic(TP.topic))
    with trio.move_on_after(cut_s):
        await stage.insist(lambda: stage.create(TP.topic, [2, 3, 1], 1))
    fabric.heal(stage.cluster.nodes[1].host, zookeeper.host)
    with suppress(Failed):  # it is there already
        await stage.insist(lambda: stage.create(TP.topic, [2, 3, 1], 1))
    stage.heal()
    await stage.until(lambda: stage.leader() == 2, "the topic is there again")
    await stage.insist(lambda: stage.send("of the new life"))
    await stage.whole()
    stage.check(await stage.values() == ["of the new life"], "the former life is there")
    stage.in_order(
        "deleting t$", "broker-1 .*cut 2 batches", "topic t is gone", "leader 2, epoch 0"
    )


async def deleted_for_good(stage: Stage) -> None:
    """A broker loses power when its topic has been deleted everywhere, and the topic is made again:
    its folder of before does not come back."""
    await stage.start(1, 2, 3, controller=3, config={"flush.messages": "1"})
    await stage.send("of the former life")
    disk = stage.cluster.nodes[1].host.disk
    await stage.until(lambda: disk.names_are_synced, "its folder is on the disk for good")
    await stage.insist(lambda: stage.client.delete_topic(TP.topic))
    await stage.until(lambda: TP not in stage.rules.partitions, "the topic is gone")
    usual, disk.random = disk.random, _Undone()  # type: ignore[assignment]
    stage.cluster.power_loss(1)
    disk.random = usual
    stage.cluster.power_on(1)
    await stage.until(lambda: stage.cluster.nodes[1].ready.is_set(), "the broker is back")
    await stage.insist(lambda: stage.create(TP.topic, [1, 2, 3], 1))
    await stage.until(lambda: stage.leader() == 1, "the topic is there again")
    await stage.insist(lambda: stage.send("of the new life"))
    await stage.whole()
    stage.check(await stage.values() == ["of the new life"], "the former life is there")
    stage.in_order("topic t is gone", "broker-1 .*loses power", "broker-1 .*t-0: leads, epoch 0")


async def deleted_meanwhile(stage: Stage) -> None:
    """A broker is cut off until its session has ended, and a topic that it has no replica of is
    deleted: back in the same process, it no longer answers that there is the topic."""
    await stage.start(1, 2, controller=1)
    services = stage.cluster.nodes[3].services
    assert services is not None
    before, ids = services.broker_epoch, "/brokers/ids/3"
    nodes = stage.cluster.simulation.zookeeper.ensemble.nodes
    stage.isolate(3)
    await stage.until(lambda: ids not in nodes, "its session has ended")
    await stage.insist(lambda: stage.client.delete_topic(TP.topic))
    await stage.until(lambda: TP not in stage.rules.partitions, "the topic is gone")
    stage.check(services.metadata.has_topic(TP.topic), "somebody has told the broker")
    stage.heal()
    await stage.until(lambda: services.broker_epoch > before, "it has registered again")
    await stage.until(lambda: not services.metadata.has_topic(TP.topic), "it knows")
    stage.in_order("broker 3 is gone", "topic t is gone", "broker 3 is there")


SCENARIOS = (
    Scenario(
        "deleted-meanwhile",
        "a topic is deleted while a broker has no session",
        Shape(brokers=3, min_isr=1, session_timeout_ms=3000),
        deleted_meanwhile,
    ),
    Scenario(
        "former-life",
        "an ISR of a deleted topic is late",
        Shape(brokers=3, min_isr=2, lag_ms=1500, session_timeout_ms=30_000),
        partial(former_life, cut_s=2.0),
    ),
    Scenario(
        "former-life-unknown",
        "the same, and its writer loses the connection before there is an answer",
        Shape(brokers=3, min_isr=2, lag_ms=1500),
        partial(former_life, cut_s=5.0),
    ),
    Scenario(
        "deleted-for-good",
        "the power goes when a topic was deleted",
        Shape(brokers=3, min_isr=2, lag_ms=3000),
        deleted_for_good,
    ),
)
