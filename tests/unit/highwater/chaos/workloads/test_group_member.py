"""A member of a group: the committed offsets that it is told, and the errors that it lives with."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from kafka import TopicPartition
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import GroupAuthorizationFailedError, UnknownBrokerIdError
from kafka.future import Future
from kafka.structs import OffsetAndMetadata

from highwater.chaos.workloads.group_member import (
    Member,
    MemberHistory,
    forget_old_answers,
    kafka_python,
    polls_on,
)

TP = TopicPartition("safe", 2)


class Answering(ConsumerCoordinator):
    """Its broker says 8534; an earlier question was answered after its asker had given up."""

    def __init__(self) -> None:
        self.config = {"retry_backoff_ms": 1}
        self._manager = self
        late = Future()
        late.success({TP: OffsetAndMetadata(5134, "", -1)})
        self._offset_fetch_futures = {frozenset([TP]): late}

    async def ensure_coordinator_ready_async(self, timeout_ms: int | None = None) -> bool:
        return True

    def call_soon(self, ask: Any, partitions: Any) -> Future:
        answer = Future()
        answer.success({TP: OffsetAndMetadata(8534, "", -1)})
        return answer

    async def wait_for(self, future: Future, timeout_ms: int | None) -> None: ...

    def __del__(self) -> None: ...


def test_a_member_asks_anew_where_kafka_python_has_kept_an_old_answer() -> None:
    coordinator = Answering()
    ask = coordinator.fetch_committed_offsets_async
    assert trio.run(ask, {TP})[TP].offset == 5134, "kafka-python has mended it: forget this"
    coordinator = Answering()
    forget_old_answers(coordinator, {TP})
    assert trio.run(coordinator.fetch_committed_offsets_async, {TP})[TP].offset == 8534


def test_a_member_polls_on_where_a_leader_has_left_metadata() -> None:
    assert not UnknownBrokerIdError.retriable, "kafka-python has mended it: forget this"
    assert polls_on(UnknownBrokerIdError(2))
    assert not polls_on(GroupAuthorizationFailedError("g"))


class OverTls:
    """The first: a handshake is reset as it begins; the second: as it polls, and as it closes; the
    third goes on until the member is told to leave."""

    made = 0
    closed: ClassVar[list[int]] = []

    def __init__(self, **config: Any) -> None:
        OverTls.made += 1
        self.number = OverTls.made
        if self.number == 1:
            raise ConnectionResetError(104, "Connection reset by peer")

    def subscribe(self, topics: list[str], listener: object) -> None: ...

    def poll(self, timeout_ms: int) -> dict[Any, Any]:
        if self.number == 2:
            raise ConnectionResetError(104, "Connection reset by peer")
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    def close(self, autocommit: bool, timeout_ms: int) -> None:
        OverTls.closed.append(self.number)
        if self.number == 2:
            raise ConnectionResetError(104, "Connection reset by peer")


def test_a_consumer_whose_handshake_was_reset_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("kafka.KafkaConsumer", OverTls)
    member = Member(
        bootstrap="127.0.0.1:9", client="kafka-python", process="m-1", group="g", topic="safe",
        out=str(tmp_path / "history.jsonl"),
    )  # fmt: skip
    try:
        kafka_python(member, MemberHistory(member))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert OverTls.closed == [2, 3]
    lines = [json.loads(line) for line in Path(member.out).read_text().splitlines()]
    assert [line["f"] for line in lines] == ["assigned_all", "leaving"]
    assert lines[0]["partitions"] == []
