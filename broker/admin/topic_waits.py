"""Waits until the metadata cache shows the change asked for: leaders of new partitions, a topic's
absence.

The controller does the work and tells every broker by UpdateMetadata, whose handler then looks into
this purgatory (kind "topic", keys are topic names; kind "ElectLeader", keys are partitions).  At
the time-out the answer is REQUEST_TIMED_OUT for each change not seen yet; it will still happen.

Once this broker shows the change it asks the others (`agreement`), and only then answers.

Source: kafka.server.DelayedCreatePartitions, DelayedDeleteTopics, DelayedElectLeader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from highwater.broker.membership.agreement import Asking, about_topics
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.services import Services

Outcome = tuple[ErrorCode, str | None]
SUCCESS: Outcome = (ErrorCode.NONE, None)
TIMED_OUT: Outcome = (ErrorCode.REQUEST_TIMED_OUT, None)
Answer = Callable[[Mapping[str, Outcome]], Response]
"""Makes the answer from the outcome of each topic."""


class TopicWait(DelayedOperation):
    """Waits for several topics: for the leaders of each topic's partitions, or, where none are
    given, until the topic is gone.
    """

    kind: ClassVar[str] = "topic"

    def __init__(
        self,
        services: Services,
        pending: Mapping[str, tuple[int, ...]],
        outcomes: Mapping[str, Outcome],
        timeout_ms: int,
        answer: Answer,
    ) -> None:
        self.keys = tuple(pending)
        self.timeout_ms = timeout_ms
        self._services = services
        self._pending = pending
        self._outcomes = outcomes
        self._answer = answer
        self._asking: Asking | None = None

    def _done(self, topic: str) -> bool:
        metadata, partitions = self._services.metadata, self._pending[topic]
        if not partitions:
            return not metadata.has_topic(topic)
        known = metadata.partitions_of(topic)
        return all(p in known and known[p].leader >= 0 for p in partitions)

    def try_complete(self) -> Response | None:
        if self._asking is None and all(map(self._done, self._pending)):
            services = self._services
            self._asking = services.agreement.begin(
                about_topics(self._pending),
                self.timeout_ms,
                lambda: services.completions.add(self.kind, self.keys),
            )
        if self._asking is None or not self._asking.over:
            return None
        return self._answer(self._outcomes)

    def on_expire(self) -> Response:
        late = {topic: TIMED_OUT for topic in self._pending if not self._done(topic)}
        return self._answer({**self._outcomes, **late})


GONE: tuple[int, ...] = ()


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
