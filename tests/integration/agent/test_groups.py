"""Groups and transactions by the control API, as real clients leave them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from highwater.agent.client import AgentProcess, Control, ControlError
from tests.integration.share_member import Member, group_of
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def orders(control: Control) -> Iterator[None]:
    control.create_topic("orders", partitions=2)
    yield
    control.delete_topic("orders")


@contextmanager
def member(agent: AgentProcess, group: str, protocol: str = "classic") -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe(["orders"])
    try:
        yield made
    finally:
        made.close()


def produce(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.produce("orders", str(number), partition=number % 2)
    assert producer.flush(30) == 0


def read(consumer: Consumer, count: int) -> None:
    got: list[object] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        got.extend([] if message is None or message.error() else [message])
        return len(got) >= count

    eventually(enough, f"{count} records are read", lambda: len(got))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_lag_falls_as_it_commits(
    agent: AgentProcess, control: Control, protocol: str
) -> None:
    produce(Producer({"bootstrap.servers": agent.bootstrap}), 10)
    with pytest.raises(ControlError, match="no group 'readers'"):
        control.group("readers")
    with member(agent, "readers", protocol) as consumer:
        read(consumer, 1)
        control.wait("group readers is stable with 1 member", within_s=20)
        with pytest.raises(ControlError, match="readers has committed nothing") as late:
            control.wait("lag of readers is below 100", within_s=0.3)
        assert late.value.kind == "timeout"
        assert late.value.state is not None
        assert late.value.state["seen"][1:] == ["readers has committed nothing"]
        read(consumer, 9)
        consumer.commit(asynchronous=False)
        control.wait("lag of readers is below 1", within_s=20)
        produce(Producer({"bootstrap.servers": agent.bootstrap}), 3)
        with pytest.raises(ControlError) as behind:
            control.wait("lag of readers is below 3", within_s=0.3)
        assert behind.value.state is not None
        state, first, second = behind.value.state["seen"]
        name = re.escape(state.partition("(")[2][:-1])
        assert re.fullmatch(rf"readers is Stable with 1 member \({name}\)", state)
        assert re.fullmatch(rf"readers is 2 behind in orders-0, which {name} reads", first)
        assert re.fullmatch(rf"readers is 1 behind in orders-1, which {name} reads", second)
        assert name.startswith("rdkafka") == (protocol == "classic"), "the others name themselves"
        told = control.group("readers")
        assert (told["state"], told["members"]) == ("Stable", 1)
        assert told["lag"] == {"orders-0": 2, "orders-1": 1}
        assert told["total_lag"] == 3
        with pytest.raises(ControlError, match="NON_EMPTY_GROUP") as refused:
            control.delete_group("readers")
        assert refused.value.kind == "refused"
    control.delete_group("readers")
    with pytest.raises(ControlError, match="no group 'readers'"):
        control.group("readers")


def test_a_member_that_is_away_is_named_where_the_lag_stays(
    agent: AgentProcess, control: Control
) -> None:
    produce(Producer({"bootstrap.servers": agent.bootstrap}), 10)
    with member(agent, "readers") as first:
        read(first, 10)
        first.commit(asynchronous=False)
        produce(Producer({"bootstrap.servers": agent.bootstrap}), 2)
        second = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "readers"})
        second.subscribe(["orders"])

        def rebalances() -> bool:  # first is away: it does not poll any more
            second.poll(0.1)
            return control.group("readers")["state"] == "PreparingRebalance"

        eventually(rebalances, "second joins", lambda: control.group("readers"))
        with pytest.raises(ControlError) as late:
            control.wait("lag of readers is below 1", within_s=0.3)
        assert "readers is PreparingRebalance with " in late.value.message
        assert "it waits until each of them has joined again" in late.value.message
        assert "behind in orders-0, which no member reads" in late.value.message
    second.close()
    control.delete_group("readers")


def test_an_open_transaction_is_told_until_it_has_ended(
    agent: AgentProcess, control: Control
) -> None:
    assert control.open_transactions() == []
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": "teller"})
    producer.init_transactions(30)
    producer.begin_transaction()
    produce(producer, 2)
    (told,) = control.open_transactions()
    assert (told["transactional_id"], told["state"], told["topics"]) == (
        "teller",
        "Ongoing",
        ["orders"],
    )
    with pytest.raises(ControlError, match="teller is Ongoing"):
        control.wait("no transaction is open", within_s=0.3)
    paused = control.fault("pause", "leader of __transaction_state-0")
    with pytest.raises(ControlError, match="which leads __transaction_state-0, does not answer"):
        control.wait("no transaction is open", within_s=0.3)
    control.end_fault(paused["id"])
    producer.abort_transaction(30)
    control.wait("no transaction is open", within_s=20)
    assert control.open_transactions() == []


@pytest.mark.apache
def test_a_share_groups_lag_is_what_is_not_done(
    agent: AgentProcess, control: Control, tmp_path: Path, apache_tool: Callable[..., Any]
) -> None:
    produce(Producer({"bootstrap.servers": agent.bootstrap}), 10)
    member, group = Member(tmp_path, agent.bootstrap, "orders", "one", "hold"), group_of("orders")
    try:
        eventually(member.is_ready, "the member is ready", lambda: member.log.read_text())
        control.wait(f"group {group} is stable with 1 member", within_s=20)
        eventually(lambda: member.of("got"), "it has some", lambda: member.events)
        with pytest.raises(ControlError, match=r"which .* reads|committed nothing"):
            control.wait(f"lag of {group} is below 1", within_s=0.3)
        member.becomes("accept")
        control.wait(f"lag of {group} is below 1", within_s=30)
        seen = control.group(group)
        assert (seen["state"], seen["members"], seen["total_lag"]) == ("Stable", 1, 0)
        assert set(seen["lag"]) == {"orders-0", "orders-1"}
        member.close()
    finally:
        member.kill()
    control.call("DELETE", f"/v1/groups/{group}")
    with pytest.raises(ControlError, match=f"no group '{group}'"):
        control.group(group)
