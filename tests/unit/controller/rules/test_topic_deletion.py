"""Deletion of topics, with all replicas there and with some of them away."""

from __future__ import annotations

import pytest

from highwater.controller.rules.events import AlterReassignments, Suspected
from highwater.controller.rules.state import Settings
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerId
from tests.unit.controller.lab import Lab, ids, metadata, stopped, tp


def lab_with_topic() -> Lab:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2), (2, 3))
    lab.create_topic("other", (1, 2))
    lab.configure("topics", "t", retention_ms="1")
    lab.elect()
    return lab


def assert_gone(lab: Lab) -> None:
    assert not lab.exists(znodes.topic_path("t"))
    assert not lab.exists(znodes.config_path("topics", "t"))
    assert not lab.exists(znodes.delete_topic_path("t"))
    state = lab.machine.state
    assert state.topics == {"other"}
    assert {r.tp.topic for r in state.replica_phases} == {"other"}
    assert {p.topic for p in state.leadership} == {"other"}
    assert not state.to_be_deleted
    assert not state.deletion_started


def test_deleted_when_all_replicas_say_so() -> None:
    lab = lab_with_topic()
    orders = lab.delete_topic("t").settle()
    assert metadata(orders, 3)[tp()].state.leader == -2
    assert set(stopped(orders, 2, delete=True)) == {tp(), tp(partition=1)}
    assert stopped(orders, 3, delete=True) == [tp(partition=1)]
    assert lab.exists(znodes.topic_path("t"))
    lab.answer_stop_replicas(orders)
    assert_gone(lab)
    assert lab.state(tp("other")).leader == 1


@pytest.mark.parametrize("end", ["it answers", "it dies", "it comes back", "it is suspected"])
def test_a_broker_without_a_replica_must_know_of_it_too(end: str) -> None:
    """A later controller would not know the topic, and that broker would go on telling clients."""
    lab = Lab(1, 2, 3, 4)
    lab.create_topic("t", (1, 2), (2, 3))
    lab.create_topic("other", (1, 2))
    lab.elect()
    lab.deaf = {4}
    lab.answer_stop_replicas(lab.delete_topic("t").settle())
    assert lab.exists(znodes.delete_topic_path("t")), "a later controller goes on with it"
    assert lab.exists(znodes.topic_path("t"))
    if end == "it answers":
        lab.deaf = set()
    elif end == "it dies":
        lab.kill(4)
    elif end == "it comes back":
        lab.bounce(4).settle()
        assert lab.exists(znodes.topic_path("t")), "what its earlier life was told does not count"
        lab.deaf = set()
    else:
        lab.do(Suspected(BrokerId(4)))
        lab.settle()
        assert lab.exists(znodes.topic_path("t")), "it may answer clients again"
        lab.kill(4)
    lab.settle()
    assert_gone(lab)


def test_the_replicas_are_stopped_before_they_are_deleted() -> None:
    lab = lab_with_topic()
    orders = lab.delete_topic("t").settle()
    assert set(stopped(orders, 2, delete=False)) == {tp(), tp(partition=1)}


def test_waits_for_a_replica_that_is_away() -> None:
    lab = lab_with_topic()
    lab.kill(3).settle()
    orders = lab.delete_topic("t").settle()
    lab.answer_stop_replicas(orders)
    assert lab.exists(znodes.topic_path("t"))
    assert lab.machine.state.ineligible_for_deletion == {"t"}
    orders = lab.start(3).settle()
    assert stopped(orders, 3, delete=True) == [tp(partition=1)]
    assert stopped(orders, 1, delete=True) == []  # it has answered so already
    lab.answer_stop_replicas(orders)
    assert_gone(lab)


def test_a_broker_that_fails_meanwhile() -> None:
    lab = lab_with_topic()
    orders = lab.delete_topic("t").settle()
    lab.kill(2).settle()
    lab.answer_stop_replicas([o for o in orders if getattr(o, "broker_id", 2) != 2])
    assert lab.exists(znodes.topic_path("t"))
    orders = lab.start(2).settle()
    assert set(stopped(orders, 2, delete=True)) == {tp(), tp(partition=1)}
    lab.answer_stop_replicas(orders)
    assert_gone(lab)


def test_an_error_is_tried_again_when_the_broker_returns() -> None:
    lab = lab_with_topic()
    orders = lab.delete_topic("t").settle()
    lab.answer_stop_replicas(orders, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert lab.exists(znodes.topic_path("t"))
    for broker in (1, 2, 3):
        lab.bounce(broker)
        lab.answer_stop_replicas(lab.settle())
    assert_gone(lab)


def test_a_controller_that_takes_over_goes_on() -> None:
    lab = lab_with_topic()
    lab.delete_topic("t").settle()
    orders = lab.elect()
    assert set(stopped(orders, 2, delete=True)) == {tp(), tp(partition=1)}
    lab.answer_stop_replicas(orders)
    assert_gone(lab)


def test_a_controller_that_takes_over_while_a_replica_is_away() -> None:
    lab = lab_with_topic()
    lab.kill(3).settle()
    lab.delete_topic("t")
    lab.answer_stop_replicas(lab.elect())
    assert lab.exists(znodes.topic_path("t"))
    first = lab.start(3).settle()
    lab.answer_stop_replicas(first)
    assert_gone(lab)


def test_a_topic_can_be_created_again() -> None:
    lab = lab_with_topic()
    lab.delete_topic("t")
    lab.answer_stop_replicas(lab.settle())
    lab.create_topic("t", (3, 1)).settle()
    assert lab.state(tp())[1:4] == (3, 0, ids(3, 1))


def test_waits_for_a_reassignment() -> None:
    lab = lab_with_topic()
    lab.do(AlterReassignments(1, {tp(): ids(1, 3)}))
    lab.settle()
    orders = lab.delete_topic("t").settle()
    assert stopped(orders, 2, delete=True) == []
    lab.leader_writes_isr(tp(), 1, 2, 3)
    lab.answer_stop_replicas(lab.settle())
    assert_gone(lab)


def test_a_topic_that_does_not_exist() -> None:
    lab = lab_with_topic()
    lab.delete_topic("nobody").settle()
    assert not lab.exists(znodes.delete_topic_path("nobody"))


def test_a_topic_that_was_created_a_moment_ago() -> None:
    lab = lab_with_topic()
    lab.create_topic("young", (1,))
    lab.delete_topic("young")
    lab.answer_stop_replicas(lab.settle())
    lab.answer_stop_replicas(lab.orders)
    assert not lab.exists(znodes.topic_path("young"))
    assert not lab.exists(znodes.delete_topic_path("young"))


@pytest.mark.parametrize("before", [True, False])
def test_deletion_can_be_forbidden(before: bool) -> None:
    lab = Lab(1, 2, settings=Settings(broker_id=BrokerId(1), delete_topic_enable=False))
    lab.create_topic("t", (1, 2))
    if before:
        lab.delete_topic("t")
    lab.elect()
    if not before:
        lab.delete_topic("t").settle()
    assert not lab.exists(znodes.delete_topic_path("t"))
    assert lab.exists(znodes.topic_path("t"))
    assert not stopped(lab.orders, 1, delete=True)


def test_broker_failure_does_not_elect_for_a_topic_that_goes() -> None:
    lab = lab_with_topic()
    lab.delete_topic("t").settle()
    lab.kill(1).settle()
    assert lab.state(tp("other")).leader == 2
    assert lab.machine.state.ineligible_for_deletion == {"t"}
