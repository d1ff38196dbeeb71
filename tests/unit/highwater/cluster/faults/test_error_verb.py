"""The verb `answer`: what is refused before the start, and what is told of it at the end."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from highwater.cluster.faults.error_verb import told
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check, parse
from highwater.cluster.faults.stage import Stage
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import VERBS, lacks
from highwater.cluster.interface import ClusterError
from highwater.cluster.links.link_rules import Action, Links, Message, Rule, Side
from highwater.kafka.errors import ErrorCode

FINE = {"name": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}


def checked(entry: dict[str, Any], *kinds: Kind) -> None:
    scene = Scene((1, 2, 3), {"orders": 3}, lacks=lacks(*kinds))
    check(parse([{**FINE, **entry}]), scene)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"error": "NOT_LEADER"}, "Kafka has no error 'NOT_LEADER': write NOT_LEADER_OR_FOLLOWER"),
        ({"error": "request_timed_out"}, "write REQUEST_TIMED_OUT"),
        ({"error": "NONE"}, "Kafka has no error 'NONE'"),
        ({"api": "setData"}, "api: Kafka has no API 'setData'"),
        ({"api": "PushTelemetry"}, "answers to 'PushTelemetry' cannot be made"),
        ({"topic": "order"}, "topic: no topic 'order'; there are orders"),
        ({"partition": -1}, "partition: -1 is no whole number of 0 or more"),
        ({"client": "app-("}, "client: 'app-(' is no regular expression"),
        ({"every": 0}, "every: 0 would answer nothing"),
        ({"probability": 1.5}, "probability: 1.5 is not above 0 and at most 1"),
        ({"api": "Heartbeat", "topic": "orders"}, "Heartbeat has no error of its own for each top"),
        (
            {"api": "Metadata", "partition": 0},
            "a request Metadata names none: write side: response",
        ),
        ({"to": "zookeeper"}, "ZooKeeper's messages cannot be answered"),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ScheduleError) as error:
        checked(entry)
    assert said in str(error.value)


def test_what_can_be_is_not() -> None:
    checked({"topic": "orders", "partition": 2, "client": "^app", "count": 0, "every": 3, "for": 2})
    checked({"api": "Metadata", "partition": 0, "side": "response"})
    checked({"api": "Fetch", "from": "broker-2", "to": "broker-1"})


def test_clients_who_come_over_tls_cannot_be_answered() -> None:
    for side in ("request", "response"):
        with pytest.raises(ScheduleError, match="clients come over TLS"):
            checked({"side": side}, Kind.TLS)
    checked({"from": "broker-2"}, Kind.TLS)
    with pytest.raises(ScheduleError, match="write clients as one end"):
        checked({"from": "broker-2"}, Kind.REMOTE)


def staged(links: Links) -> Stage:
    view = SimpleNamespace(partitions={}, controller=None)
    cluster = SimpleNamespace(links=links, brokers=(1, 2, 3), running=lambda member: True)
    return Stage(cast("Any", cluster), cast("Any", view), random.Random(1))


@pytest.mark.parametrize("side", Side)
async def test_it_answers_clients_and_says_whom(side: Side) -> None:
    links = Links()
    params = {k: v for k, v in FINE.items() if k != "name"} | {"count": 3, "side": side.value}
    done = await VERBS["answer"].carry_out(staged(links), Fault("answer", params=params))
    (rule,) = links.rules
    assert (rule.action, rule.error) == (Action.ANSWER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ways = [("clients", "broker-1"), ("broker-2", "broker-1")]
    taken = [
        rule.takes(Message(*(way if side is Side.REQUEST else way[::-1]), side, "Produce"))
        for way in ways
    ]
    assert taken == [True, False]
    for client in ("app-1", "rdkafka", "app-1"):
        assert rule.is_due()
        rule.answered[client] += 1
    assert done.felt is not None
    assert done.felt() == 3
    assert done.undo is not None
    assert await done.undo() == (
        "answered 3 messages with NOT_LEADER_OR_FOLLOWER: 2 of app-1, 1 of rdkafka"
    )
    assert not links.rules


async def test_one_that_could_read_nothing_says_so() -> None:
    links = Links()
    params = {k: v for k, v in FINE.items() if k != "name"}
    done = await VERBS["answer"].carry_out(staged(links), Fault("answer", params=params))
    links.rules[0].unread = 4
    assert done.undo is not None
    with pytest.raises(ClusterError, match="answered nothing: 4 messages could not be read"):
        await done.undo()


async def test_it_is_refused_where_the_clients_speak_tls() -> None:
    params = {k: v for k, v in FINE.items() if k != "name"}
    with pytest.raises(ClusterError, match="clients come over TLS"):
        await VERBS["answer"].carry_out(
            staged(Links(encrypted_clients=True)), Fault("answer", params=params)
        )


async def test_a_release_of_all_leaves_it_alone() -> None:
    links = Links()
    rule = links.add(Rule(Action.ANSWER, "Produce", error=1))
    held = links.add(Rule(Action.HOLD, "Fetch"))
    await VERBS["release"].carry_out(staged(links), Fault("release"))
    assert (links.rules, held.released.is_set()) == ([rule], True)


def test_what_had_no_answer_and_what_could_not_be_read_is_told() -> None:
    rule = Rule(Action.ANSWER, "Produce", error=87, matched=1, closed=1, unread=2)
    rule.answered[""] = 1
    assert told(rule) == (
        "answered 1 messages with INVALID_RECORD: 1 of no name; 1 of them had acks=0, and cost "
        "their connections; 2 more could not be read"
    )
