"""The traffic that passes a link: directions are independent, rules count the messages that they
took."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from highwater.cluster.links.link_rules import Action, Links, Message, Rule, Side
from highwater.cluster.links.whose import source_of

A, B = "broker-1", "broker-2"


async def test_cut_is_one_direction_and_heal_lets_waiters_go() -> None:
    links = Links()
    links.cut(A, B)
    await links.wait_open((B, A))
    passed: list[str] = []

    async def send() -> None:
        await links.wait_open((A, B))
        passed.append("through")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert passed == []
        links.heal(B, A)
        await wait_all_tasks_blocked()
        assert passed == []
        links.heal(A, B)
    assert passed == ["through"]
    assert links.stopped[A, B] == 1
    assert links.stopped[B, A] == 0


async def test_heal_without_names_opens_everything() -> None:
    links = Links()
    links.cut(A, B)
    links.cut(B, "zookeeper")
    links.heal()
    assert links.cuts == []


def test_a_direction_cut_twice_is_open_when_both_are_taken_back() -> None:
    links = Links()
    links.cut(A, B)
    links.cut(A, B)
    links.take_back(A, B)
    assert links.cuts == [(A, B)]
    links.take_back(A, B)
    assert links.cuts == []
    links.take_back(A, B)  # healed meanwhile by somebody else
    assert links.cuts == []
    links.cut(A, B)
    assert links.cuts == [(A, B)]


def test_rule_takes_what_it_says_and_no_more() -> None:
    links = Links()
    rule = links.add(Rule(Action.HOLD, "setData", source=A, path=r"/partitions/0/state$"))
    state = "/brokers/topics/t/partitions/0/state"
    other = Message(A, "zookeeper", Side.REQUEST, "setData", ("/controller_epoch",))
    assert links.rule_for(other) is None
    assert links.rule_for(Message(B, "zookeeper", Side.REQUEST, "setData", (state,))) is None
    assert links.rule_for(Message(A, "zookeeper", Side.RESPONSE, "setData", (state,))) is None
    hit = Message(A, "zookeeper", Side.REQUEST, "setData", (state,))
    assert links.rule_for(hit) is rule
    assert links.rule_for(hit) is None, "the limit is one"
    assert rule.matched == 1


def test_a_released_rule_takes_nothing_more() -> None:
    links = Links()
    rule = links.add(Rule(Action.DROP, "Fetch", Side.RESPONSE, limit=0))
    message = Message(A, B, Side.RESPONSE, "Fetch")
    assert links.rule_for(message) is rule
    assert links.rule_for(message) is rule
    links.release(rule)
    assert links.rule_for(message) is None


def test_the_client_id_names_the_member() -> None:
    assert source_of("broker-2-fetcher-0") == "broker-2"
    assert source_of("controller-3") == "broker-3"
    assert source_of("1") == "broker-1"
    assert source_of("broker-3") == "broker-3"
    assert source_of(None) == "clients"
    assert source_of("consumer-1") == "clients"
    assert source_of("brokerage-7") == "clients"
