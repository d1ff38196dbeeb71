"""Topic ids as the controller gives them: once, kept, put back, told to all, and never two."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from highwater.controller.rules.effects import Order, SendUpdateMetadata
from highwater.controller.rules.events import LeaderAndIsrAnswered
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import SUPPORTED
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.topic_ids import NO_ID, made_of
from highwater.kafka.types import BrokerId
from highwater.kafka.znodes import TopicState
from highwater.world.api import Create, Delete, SetData
from tests.unit.controller.lab import Lab, ids, leader_and_isr, metadata, tp

OTHER = made_of("another cluster", "t", 1)


def features(orders: Sequence[Order]) -> list[dict[str, int]]:
    return [dict(o.features) for o in orders if isinstance(o, SendUpdateMetadata)]


def answer(lab: Lab, broker: int, *, error: int = 0, known: bytes | None = None) -> list[Order]:
    """A broker's answer to LeaderAndIsr for t-0."""
    told = {} if known is None else {"t": known}
    epoch = lab.machine.state.brokers[BrokerId(broker)].epoch
    event = LeaderAndIsrAnswered(BrokerId(broker), epoch, 0, {tp(): error}, told)
    return lab.do(event) + lab.settle()


def without_id(lab: Lab) -> None:
    """A tool before Kafka 2.8 writes the topic's znode."""
    known = lab.topic("t")
    data = znodes.encode_topic(known._replace(topic_id=None))
    lab.write(SetData(znodes.topic_path("t"), data))


def test_a_new_topic_has_its_id_before_its_first_leader() -> None:
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2))
    orders = lab.settle()
    topic_id = lab.topic("t").topic_id
    assert topic_id is not None
    for broker in (1, 2):
        assert leader_and_isr(orders, broker)[tp()].topic_id == topic_id
        assert metadata(orders, broker)[tp()].topic_id == topic_id
    assert features(orders)[-1] == SUPPORTED
    assert lab.settle() == [], "its own write is no news"


def test_a_topic_of_the_same_name_is_another_one() -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,))
    lab.settle()
    first = lab.topic("t").topic_id
    lab.delete_topic("t")
    orders = lab.settle()
    lab.answer_stop_replicas(orders)
    lab.create_topic("t", (1,))
    lab.settle()
    assert lab.topic("t").topic_id not in (None, first)


def test_ids_never_change_over_controllers_and_bounces() -> None:
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2))
    lab.settle()
    first = lab.topic("t").topic_id
    orders = lab.elect()
    assert leader_and_isr(orders, 2)[tp()].topic_id == first
    lab.bounce(2)
    orders = lab.settle()
    assert leader_and_isr(orders, 2)[tp()].topic_id == first
    assert lab.topic("t").topic_id == first


def test_no_ids_beside_a_broker_that_knows_none() -> None:
    lab = Lab(1, 2, old=(2,))
    lab.elect()
    lab.create_topic("t", (1, 2))
    orders = lab.settle()
    assert lab.topic("t").topic_id is None
    assert leader_and_isr(orders, 1)[tp()].topic_id == NO_ID
    assert features(orders)[-1] == {}
    answer(lab, 1)
    answer(lab, 2)
    assert lab.topic("t").topic_id is None


def test_an_upgrade_gives_ids_when_the_last_old_broker_has_come_back_new() -> None:
    lab = Lab(1, 2, old=(2,))
    lab.elect()
    lab.create_topic("t", (1, 2))
    lab.settle()
    answer(lab, 1)
    lab.kill(2)
    assert features(lab.settle())[-1] == SUPPORTED, "only brokers that are registered count"
    given = lab.topic("t").topic_id
    assert given is not None, "each live replica has answered"
    lab.old.clear()
    lab.start(2)
    orders = lab.settle()
    assert leader_and_isr(orders, 2)[tp()].topic_id == given
    assert metadata(orders, 1)[tp()].topic_id == given


def test_ids_are_out_of_use_while_an_old_broker_is_there() -> None:
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2))
    lab.settle()
    given = lab.topic("t").topic_id
    lab.old.add(3)
    lab.start(3)
    orders = lab.settle()
    assert features(orders)[-1] == {}
    assert metadata(orders, 3)[tp()].topic_id == given, "which stays in the znode, too"
    assert lab.topic("t").topic_id == given
    lab.kill(3)
    assert features(lab.settle())[-1] == SUPPORTED


def test_an_id_that_a_log_knows_goes_back_into_the_znode() -> None:
    """KAFKA-14190, while there was no controller to see it."""
    lab = Lab(1, 2)
    lab.elect()
    lab.create_topic("t", (1, 2))
    lab.settle()
    without_id(lab)
    lab.elect()
    assert lab.topic("t").topic_id is None, "no second one before each replica was heard"
    answer(lab, 1)
    assert lab.topic("t").topic_id is None
    orders = answer(lab, 2, known=OTHER)
    assert lab.topic("t").topic_id == OTHER
    for broker in (1, 2):
        assert leader_and_isr(orders, broker)[tp()].topic_id == OTHER
        assert metadata(orders, broker)[tp()].topic_id == OTHER


def test_replicas_that_are_away_are_not_waited_for() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    answer(lab, 1)
    assert lab.topic("t").topic_id is None
    lab.kill(2)
    lab.settle()
    assert lab.topic("t").topic_id is not None


def test_a_failed_replica_has_not_answered() -> None:
    lab = Lab(1)
    lab.create_topic("t", (1,))
    lab.elect()
    answer(lab, 1, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert lab.topic("t").topic_id is None


def test_a_replica_in_a_failed_directory_is_not_waited_for() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    answer(lab, 1)
    assert lab.topic("t").topic_id is None
    answer(lab, 2, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert lab.topic("t").topic_id is not None


def test_an_id_that_a_tool_drops_is_put_back(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,))
    lab.settle()
    given = lab.topic("t").topic_id
    without_id(lab)
    lab.settle()
    assert lab.topic("t").topic_id == given
    assert "is without its id" in caplog.text
    lab.write(
        SetData(
            znodes.topic_path("t"), znodes.encode_topic(lab.topic("t")._replace(topic_id=OTHER))
        )
    )
    lab.settle()
    assert lab.topic("t").topic_id == given, "nor does it become another one"


def test_a_tool_that_adds_partitions_without_the_id() -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,))
    lab.settle()
    given = lab.topic("t").topic_id
    grown = TopicState({p: ReplicaAssignment(ids(1)) for p in (0, 1)})
    lab.write(SetData(znodes.topic_path("t"), znodes.encode_topic(grown)))
    orders = lab.settle()
    assert lab.topic("t") == grown._replace(topic_id=given)
    assert leader_and_isr(orders, 1)[tp(partition=1)].topic_id == given


def test_partitions_that_are_added_beside_the_write_stay() -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,))
    lab.before_write = lambda: lab.add_partitions("t", (1,))
    orders = lab.settle()
    found = lab.topic("t")
    assert sorted(found.partitions) == [0, 1]
    assert found.topic_id is not None
    assert leader_and_isr(orders, 1)[tp(partition=1)].topic_id == found.topic_id


def test_a_topic_that_goes_beside_the_write() -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,))
    lab.before_write = lambda: lab.write(Delete(znodes.topic_path("t")))
    lab.settle()
    assert not lab.exists(znodes.topic_path("t"))
    assert lab.machine.state.topic_ids == {}


def test_another_topics_log_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(1)
    lab.elect()
    lab.create_topic("t", (1,))
    lab.settle()
    given = lab.topic("t").topic_id
    answer(lab, 1, error=ErrorCode.INCONSISTENT_TOPIC_ID, known=OTHER)
    assert lab.topic("t").topic_id == given
    assert "the replica takes no part" in caplog.text


def test_a_topic_that_is_being_deleted_gets_none() -> None:
    lab = Lab(1)
    lab.create_topic("t", (1,))
    lab.write(Create(znodes.delete_topic_path("t")))
    lab.elect()
    answer(lab, 1)
    assert lab.machine.state.topic_ids == {}
