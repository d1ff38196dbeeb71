"""Errors that the verb `answer` gives real clients: what they do then, and what the log holds."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from highwater.agent.client import Control, ControlError
from tests.integration.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def bootstrap(control: Control) -> Any:
    control.create_topic("orders", partitions=1)
    yield control.status()["bootstrap"]
    control.mend()
    control.delete_topic("orders")


def delivered(bootstrap: str, value: bytes, **settings: Any) -> str:
    """Produces one record; gives "" or the name of the error in its delivery report."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "app-1", **settings})
    reports: list[str] = []
    producer.produce(
        "orders", value, partition=0,
        on_delivery=lambda error, _: reports.append("" if error is None else error.name()),
    )  # fmt: skip
    assert producer.flush(60) == 0
    (report,) = reports
    return report


def stored(bootstrap: str) -> list[bytes]:
    return list(read_all(bootstrap, "orders", 1).values())


def test_a_producer_goes_on_after_a_leader_that_denies_it_twice(
    control: Control, bootstrap: str
) -> None:
    denied = control.fault(
        "answer", api="Produce", error="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=0,
        client="^app-1$", count=2,
    )  # fmt: skip
    assert delivered(bootstrap, b"one") == ""
    effect = control.end_fault(denied["id"])["effect"]
    assert effect == "answered 2 messages with NOT_LEADER_OR_FOLLOWER: 2 of app-1"
    assert stored(bootstrap) == [b"one"]


def test_a_record_that_is_refused_for_good_is_told_and_not_stored(
    control: Control, bootstrap: str
) -> None:
    refused = control.fault("answer", api="Produce", error="INVALID_RECORD", topic="orders")
    assert delivered(bootstrap, b"bad") == "INVALID_RECORD"
    assert delivered(bootstrap, b"good") == ""
    effect = control.end_fault(refused["id"])["effect"]
    assert effect == "answered 1 messages with INVALID_RECORD: 1 of app-1"
    assert stored(bootstrap) == [b"good"]


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_record_that_was_stored_and_told_to_have_timed_out(
    control: Control, bootstrap: str, idempotent: bool, copies: int
) -> None:
    """Its retry is known for one where the producer is idempotent, and is stored else."""
    late = control.fault(
        "answer", api="Produce", error="REQUEST_TIMED_OUT", side="response", topic="orders"
    )
    assert delivered(bootstrap, b"once", **{"enable.idempotence": idempotent}) == ""
    effect = control.end_fault(late["id"])["effect"]
    assert effect == "answered 1 messages with REQUEST_TIMED_OUT: 1 of app-1"
    assert stored(bootstrap) == [b"once"] * copies


def test_a_commit_meets_the_error_at_its_partition(control: Control, bootstrap: str) -> None:
    delivered(bootstrap, b"one")
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "client.id": "reader"}
    )
    try:
        full = control.fault(
            "answer", api="OffsetCommit", error="OFFSET_METADATA_TOO_LARGE", client="reader"
        )
        wanted = [TopicPartition("orders", 0, 1)]
        with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
            consumer.commit(offsets=wanted, asynchronous=False)
        assert "1 of reader" in control.end_fault(full["id"])["effect"]
        (committed,) = consumer.commit(offsets=wanted, asynchronous=False)
        assert (committed.offset, committed.error) == (1, None)
    finally:
        consumer.close()


def test_an_error_that_kafka_does_not_have_is_refused(control: Control) -> None:
    with pytest.raises(ControlError, match="write NOT_LEADER_OR_FOLLOWER") as error:
        control.fault("answer", api="Produce", error="NOT_LEADER")
    assert error.value.kind == "bad_request"
