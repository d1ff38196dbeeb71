"""Topic ids while brokers that know them take the place of others, and the way back."""

from __future__ import annotations

from highwater.kafka import znodes
from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage

THREE = Shape(brokers=3, min_isr=2, lag_ms=3000, session_timeout_ms=3000)


def _stored(stage: Stage) -> bytes | None:
    """The id in the topic's znode."""
    node = stage.cluster.simulation.zookeeper.ensemble.nodes[znodes.topic_path(TP.topic)]
    return znodes.decode_topic(TP.topic, node.data).topic_id


def _shown(stage: Stage) -> set[bytes]:
    """The ids that brokers answer."""
    services = [node.services for node in stage.cluster.nodes.values()]
    return {s.metadata.topic_id(TP.topic) for s in services if s is not None}


def _in_logs(stage: Stage) -> set[bytes | None]:
    services = [node.services for node in stage.cluster.nodes.values()]
    logs = [s.logs.get(TP) for s in services if s is not None]
    return {found.topic_id for found in logs if found is not None}


async def _restart(stage: Stage, broker: int, *, knows_ids: bool) -> None:
    node = stage.cluster.nodes[broker]
    stage.cluster.stop(broker)
    await stage.until(lambda: not node.running, f"broker {broker} has stopped")
    (stage.cluster.without_ids.discard if knows_ids else stage.cluster.without_ids.add)(broker)
    stage.cluster.start(broker)
    await stage.whole()
    await stage.insist(lambda: stage.send(f"after {broker}"))


async def by_turns(stage: Stage) -> None:
    """Ids come with the last broker that did not know them, and reach the logs that are there.  On
    the way back they stay in the znode, and nobody is answered them."""
    stage.cluster.without_ids = {1, 2, 3}
    await stage.start(1, 2, 3)
    await stage.send("one")
    for broker in (2, 3):
        await _restart(stage, broker, knows_ids=True)
        stage.check(_stored(stage) is None, "a topic has an id that not every broker knows")
        stage.check(_shown(stage) == {bytes(16)}, "an id is answered that not every broker knows")
    await _restart(stage, 1, knows_ids=True)
    await stage.until(lambda: _stored(stage) is not None, "the topic has an id")
    given = _stored(stage)
    await stage.until(lambda: _in_logs(stage) == {given}, "each log has it")
    await stage.until(lambda: _shown(stage) == {given}, "each broker answers it")
    stage.client.forget(TP)
    await stage.insist(lambda: stage.client.fetch_decoded(TP, 0, version=12))
    stage.check(stage.client.read_by_id > 0, "nothing was read by the id")
    await _restart(stage, 3, knows_ids=False)
    await stage.until(lambda: _shown(stage) == {bytes(16)}, "nobody answers the id")
    stage.check(_stored(stage) == given, "the znode has lost the id")
    names = "UNKNOWN_TOPIC_ID", "NOT_LEADER_OR_FOLLOWER"
    await stage.fails(lambda: stage.client.fetch_decoded(TP, 0, version=12), *names)
    await _restart(stage, 3, knows_ids=True)
    await stage.until(lambda: _shown(stage) == {given}, "each broker answers it again")
    stage.check(_in_logs(stage) == {given}, "a log has another id")
    await stage.equal_logs((1, 2, 3))
    stage.check((await stage.values())[:2] == ["one", "after 2"], "a record is gone")
    stage.in_order(
        "broker 2 shuts down", "broker 3 shuts down", "broker 1 shuts down",
        "broker 3 shuts down", "broker 3 shuts down",
    )  # fmt: skip


SCENARIOS = (
    Scenario("ids-by-turns", "topics get ids in a rolling upgrade, and keep them", THREE, by_turns),
)
