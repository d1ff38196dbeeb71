"""Waiting until the metadata cache shows what was asked for: leaders of new partitions, a topic's
absence.

The controller does the work and tells every broker by UpdateMetadata, whose handler then looks into
this purgatory (kind "topic", keys are topic names; kind "ElectLeader", keys are partitions).  At
the time-out the answer says REQUEST_TIMED_OUT for what is not there yet; it will still happen.

Source: kafka.server.DelayedCreatePartitions, DelayedDeleteTopics, DelayedElectLeader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from broker.metadata_cache import MetadataCache
from broker.purgatory import DelayedOperation
from broker.response import Response
from highwater.common.errors import ErrorCode
from highwater.common.types import TopicPartition

Outcome = tuple[ErrorCode, str | None]
SUCCESS: Outcome = (ErrorCode.NONE, None)
TIMED_OUT: Outcome = (ErrorCode.REQUEST_TIMED_OUT, None)
Answer = Callable[[Mapping[str, Outcome]], Response]
"""Makes the answer of the outcome of each topic."""


class TopicWait(DelayedOperation):
    """Waits for several topics.  `pending` says of each topic whether it is as it should be."""

    kind: ClassVar[str] = "topic"

    def __init__(
        self,
        pending: Mapping[str, Callable[[], bool]],
        outcomes: Mapping[str, Outcome],
        timeout_ms: int,
        answer: Answer,
    ) -> None:
        self.keys = tuple(pending)
        self.timeout_ms = timeout_ms
        self._pending = pending
        self._outcomes = outcomes
        self._answer = answer

    def try_complete(self) -> Response | None:
        if all(done() for done in self._pending.values()):
            return self._answer(self._outcomes)
        return None

    def on_expire(self) -> Response:
        late = {topic: TIMED_OUT for topic, done in self._pending.items() if not done()}
        return self._answer({**self._outcomes, **late})


def partitions_have_leaders(
    metadata: MetadataCache, topic: str, partitions: tuple[int, ...]
) -> Callable[[], bool]:
    """Whether every one of the partitions is known and has a leader."""

    def done() -> bool:
        known = metadata.partitions_of(topic)
        return all(p in known and known[p].leader >= 0 for p in partitions)

    return done


def topic_is_gone(metadata: MetadataCache, topic: str) -> Callable[[], bool]:
    return lambda: not metadata.has_topic(topic)


class ElectionWait(DelayedOperation):
    """Waits until the metadata shows the leaders that the controller elected."""

    kind: ClassVar[str] = "ElectLeader"

    def __init__(
        self,
        metadata: MetadataCache,
        expected: Mapping[TopicPartition, int | None],
        outcomes: Mapping[TopicPartition, Outcome],
        timeout_ms: int,
        answer: Callable[[Mapping[TopicPartition, Outcome]], Response],
    ) -> None:
        """`expected` is the broker that must lead; None where any live one will do."""
        self.keys = tuple(expected)
        self.timeout_ms = timeout_ms
        self._metadata = metadata
        self._expected = expected
        self._outcomes = outcomes
        self._answer = answer

    def _is_elected(self, tp: TopicPartition) -> bool:
        leader, expected = self._metadata.leader_of(tp), self._expected[tp]
        return self._metadata.is_alive(leader) if expected is None else leader == expected

    def try_complete(self) -> Response | None:
        if all(self._is_elected(tp) for tp in self._expected):
            return self._answer(self._outcomes)
        return None

    def on_expire(self) -> Response:
        late = {tp: TIMED_OUT for tp in self._expected if not self._is_elected(tp)}
        return self._answer({**self._outcomes, **late})
