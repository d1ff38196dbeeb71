"""The topics, as ZooKeeper has them; creating and deleting them."""

from __future__ import annotations

from typing import Any

import trio

from highwater.agent.errors import ControlError
from highwater.cluster.faults.stage import Stage
from highwater.cluster.leader_moves import elect_preferred
from highwater.cluster.run_topics import NewTopic, create_new, delete_topic
from highwater.kafka.types import TopicPartition

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
SHOWN_S = 30.0
"""How long the harness's view of ZooKeeper may lag behind what the brokers know already."""


def topics(stage: Stage) -> list[dict[str, Any]]:
    names = sorted({tp.topic for tp in stage.zookeeper.replicas})
    return [topic(stage, name) for name in names]


def topic(stage: Stage, name: str) -> dict[str, Any]:
    """A topic with its partitions; ControlError where there is none."""
    replicas = stage.zookeeper.replicas
    found = sorted(tp for tp in list(replicas) if tp.topic == name)
    if not found:
        known = ", ".join(sorted({tp.topic for tp in replicas} - set(INTERNAL))) or "none"
        raise ControlError("not_found", f"no topic {name!r}; there are: {known}")
    return {
        "name": name,
        "internal": name in INTERNAL,
        "partitions": [_partition(stage, tp) for tp in found],
    }


def _partition(stage: Stage, tp: TopicPartition) -> dict[str, Any]:
    state = stage.zookeeper.partitions.get(tp)
    return {
        "partition": tp.partition,
        "leader": -1 if state is None else state.leader,
        "leader_epoch": -1 if state is None else state.leader_epoch,
        "isr": [] if state is None else list(state.isr),
        "replicas": list(stage.zookeeper.replicas.get(tp, ())),
    }


async def create(stage: Stage, body: dict[str, Any]) -> dict[str, Any]:
    factor = body.get("replication_factor")
    wanted = NewTopic(
        body["name"],
        body.get("partitions", 1),
        -1 if factor is None else factor,
        {name: str(value) for name, value in body.get("config", {}).items()},
    )
    await create_new(stage.cluster, [wanted], exists_ok=False)
    seen = await stage.zookeeper.wait(lambda: _led(stage, wanted), SHOWN_S)
    if not seen:
        raise ControlError("timeout", f"ZooKeeper shows no leaders of {wanted.name}")
    return topic(stage, wanted.name)


def _led(stage: Stage, wanted: NewTopic) -> bool:
    partitions = stage.zookeeper.partitions
    states = [partitions.get(TopicPartition(wanted.name, n)) for n in range(wanted.partitions)]
    return all(state is not None and state.leader >= 0 for state in states)


async def elect_first_replicas(stage: Stage) -> None:
    """Makes the first replica of every partition its leader; ControlError where one of them does
    not become it in time."""
    await elect_preferred(stage.cluster)
    if not await stage.zookeeper.wait(lambda: not _led_elsewhere(stage), SHOWN_S):
        places = ", ".join(map(str, _led_elsewhere(stage)))
        raise ControlError("timeout", f"another than the first replica leads {places}")


def _led_elsewhere(stage: Stage) -> list[TopicPartition]:
    states = dict(stage.zookeeper.partitions)
    return [
        tp
        for tp, replicas in sorted(stage.zookeeper.replicas.items())
        if tp in states and replicas and states[tp].leader != replicas[0]
    ]


async def delete(stage: Stage, name: str) -> dict[str, Any]:
    topic(stage, name)
    await delete_topic(stage.cluster, name)
    with trio.move_on_after(SHOWN_S):
        while any(tp.topic == name for tp in list(stage.zookeeper.replicas)):
            await trio.sleep(0.01)
        return {}
    raise ControlError("timeout", f"ZooKeeper still has {name}")
