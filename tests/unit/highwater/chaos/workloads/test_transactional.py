"""A call of librdkafka that does not come back costs an instance, and not the copier."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from highwater.chaos.workloads import transactional
from highwater.chaos.workloads.transactional import HUNG, Ended, Instance

pytest.importorskip("confluent_kafka")

CONSUMER: Any = SimpleNamespace(consumer_group_metadata=lambda: b"group")


def instance(send: Any) -> tuple[Instance, list[tuple[str, ...]]]:
    counted: list[tuple[str, ...]] = []
    made = Instance.__new__(Instance)
    made.process = "copier-3"
    made.recorder = SimpleNamespace(count=lambda *what: counted.append(what))  # type: ignore[assignment]
    made._producer = SimpleNamespace(send_offsets_to_transaction=send)
    return made, counted


def test_a_call_that_does_not_return_ends_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "OFFSETS_S", 0.05)
    let_go = threading.Event()
    copier, counted = instance(lambda *_: let_go.wait(30))
    with pytest.raises(Ended):
        copier.offsets([], CONSUMER)
    let_go.set()
    assert counted == [("copier-3", "unknown", HUNG)]


def test_an_error_of_the_call_is_raised() -> None:
    from confluent_kafka import KafkaException

    def fail(*_: Any) -> None:
        raise KafkaException("fenced")

    copier, counted = instance(fail)
    with pytest.raises(KafkaException, match="fenced"):
        copier.offsets([], CONSUMER)
    assert counted == []


def test_an_answer_in_time_is_all() -> None:
    seen: list[Any] = []
    copier, counted = instance(lambda *given: seen.append(given))
    copier.offsets([], CONSUMER)
    assert seen == [([], b"group", transactional.GIVE_UP_S)]
    assert counted == []
