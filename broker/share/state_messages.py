"""Calls of the persister as requests to the share coordinator, and their answers.

A request has one group and any number of share-partitions, so calls of one kind for one group can
share a request.  The result of each is told by topic id and partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from highwater.broker.share.persister import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    SharePartitionKey,
    StateAnswer,
    StateBatch,
)
from highwater.kafka.client.retries import code_of
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.wire import messages as m

INITIALIZE, READ, WRITE, DELETE, SUMMARY = range(83, 88)
"""The API keys."""


@dataclass(frozen=True, slots=True)
class StateCall:
    """One call: `api_key` is its kind, and fields that the kind has not are at their defaults."""

    api_key: int
    key: SharePartitionKey
    state_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    start_offset: int = NO_OFFSET
    delivery_complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class _Kind:
    request: Any
    topic: Any
    response: Any
    result: Any
    version: int
    """The version that brokers send."""
    asks: tuple[str, ...]
    answers: tuple[str, ...] = ()
    """Fields beside partition and error, by the names of `StateCall` and `StateAnswer`."""


KINDS: Final[Mapping[int, _Kind]] = {
    INITIALIZE: _Kind(
        m.InitializeShareGroupStateRequest,
        m.InitializeShareGroupStateRequest.InitializeStateData,
        m.InitializeShareGroupStateResponse,
        m.InitializeShareGroupStateResponse.InitializeStateResult,
        0,
        ("state_epoch", "start_offset"),
    ),
    READ: _Kind(
        m.ReadShareGroupStateRequest,
        m.ReadShareGroupStateRequest.ReadStateData,
        m.ReadShareGroupStateResponse,
        m.ReadShareGroupStateResponse.ReadStateResult,
        0,
        ("leader_epoch",),
        ("state_epoch", "start_offset", "batches"),
    ),
    WRITE: _Kind(
        m.WriteShareGroupStateRequest,
        m.WriteShareGroupStateRequest.WriteStateData,
        m.WriteShareGroupStateResponse,
        m.WriteShareGroupStateResponse.WriteStateResult,
        1,
        ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count", "batches"),
    ),
    DELETE: _Kind(
        m.DeleteShareGroupStateRequest,
        m.DeleteShareGroupStateRequest.DeleteStateData,
        m.DeleteShareGroupStateResponse,
        m.DeleteShareGroupStateResponse.DeleteStateResult,
        0,
        (),
    ),
    SUMMARY: _Kind(
        m.ReadShareGroupStateSummaryRequest,
        m.ReadShareGroupStateSummaryRequest.ReadStateSummaryData,
        m.ReadShareGroupStateSummaryResponse,
        m.ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
        1,
        ("leader_epoch",),
        ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count"),
    ),
}


def request_of(calls: Iterable[StateCall]) -> tuple[Any, int]:
    """The request of calls of one kind and one group, and its version."""
    calls = list(calls)
    kind = KINDS[calls[0].api_key]
    topics: dict[bytes, list[Any]] = {}
    for call in calls:
        fields = _fields(call, kind.asks, kind.topic.PartitionData)
        part = kind.topic.PartitionData(partition=call.key.partition, **fields)
        topics.setdefault(call.key.topic_id, []).append(part)
    named = [kind.topic(topic_id=UUID(bytes=id_), partitions=ps) for id_, ps in topics.items()]
    return kind.request(group_id=calls[0].key.group, topics=named), kind.version


def calls_of(api_key: int, request: Any) -> list[StateCall]:
    """The calls in a request, in its order."""
    return [
        StateCall(
            api_key,
            SharePartitionKey(request.group_id, _id(topic.topic_id), part.partition),
            **_values(part, KINDS[api_key].asks),
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def response_of(api_key: int, answers: Iterable[tuple[SharePartitionKey, StateAnswer]]) -> Any:
    """The answer to a request with these share-partitions."""
    kind = KINDS[api_key]
    topics: dict[bytes, list[Any]] = {}
    for key, answer in answers:
        told = () if answer.error else kind.answers
        result = kind.result.PartitionResult(
            partition=key.partition,
            error_code=int(answer.error),
            error_message=answer.message,
            **_fields(answer, told, kind.result.PartitionResult),
        )
        topics.setdefault(key.topic_id, []).append(result)
    named = [kind.result(topic_id=UUID(bytes=id_), partitions=ps) for id_, ps in topics.items()]
    return kind.response(results=named)


def answers_of(api_key: int, group: str, response: Any) -> dict[SharePartitionKey, StateAnswer]:
    return {
        SharePartitionKey(group, _id(topic.topic_id), part.partition): StateAnswer(
            code_of(part.error_code),
            part.error_message,
            **_values(part, KINDS[api_key].answers),
        )
        for topic in response.results
        for part in topic.partitions
    }


def _fields(source: StateCall | StateAnswer, names: Iterable[str], place: Any) -> dict[str, Any]:
    found = {name: getattr(source, name) for name in names if name != "batches"}
    if "batches" in names:
        found["state_batches"] = [place.StateBatch(**b._asdict()) for b in source.batches]
    return found


def _values(part: Any, names: Iterable[str]) -> dict[str, Any]:
    found = {name: getattr(part, name) for name in names if name != "batches"}
    if "batches" in names:
        found["batches"] = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in part.state_batches
        )
    return found


def _id(topic_id: UUID | None) -> bytes:
    return NO_ID if topic_id is None else topic_id.bytes
