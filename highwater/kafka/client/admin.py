"""Topics, elections and reassignments, asked of the controller.

Every operation finds the controller by the metadata, and tries again at the one that is named then
while it hears NOT_CONTROLLER or the connection ends, until its time-out.  An operation that was
sent and not answered may have happened: a second attempt then hears TOPIC_ALREADY_EXISTS or
UNKNOWN_TOPIC_OR_PARTITION, and the caller is told just that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import trio

from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.retries import code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

Result = tuple[ErrorCode, str | None]

_CREATE_TOPICS = 4
_DELETE_TOPICS = 3
_CREATE_PARTITIONS = 1
_ELECT_LEADERS = 1
_REASSIGNMENTS = 0


class Reassignment(NamedTuple):
    """A reassignment under way."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Admin:
    """The administrator's operations; every one raises ApiError or OSError after `timeout_s`."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = 30.0) -> None:
        self._cluster = cluster
        self.timeout_s = timeout_s

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ApiError: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR ..."""
        topic_class = CreateTopicsRequest.CreatableTopic
        topic = topic_class(
            name=name,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replication_factor,
            assignments=[
                topic_class.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids))
                for p, ids in (assignment or {}).items()
            ],
            configs=[
                topic_class.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=int(self.timeout_s * 1000), validate_only=False
        )
        answer = await self._ask(
            request, _CREATE_TOPICS, lambda a: [t.error_code for t in a.topics]
        )
        for found in answer.topics:
            _raise(found.error_code, found.error_message)

    async def delete_topic(self, name: str) -> None:
        """Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION ..."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(self.timeout_s * 1000))
        answer = await self._ask(
            request, _DELETE_TOPICS, lambda a: [t.error_code for t in a.responses]
        )
        for found in answer.responses:
            _raise(found.error_code, None)

    async def create_partitions(self, name: str, count: int) -> None:
        """Raises the topic's number of partitions to `count`."""
        topic_class = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[topic_class(name=name, count=count, assignments=None)],
            timeout_ms=int(self.timeout_s * 1000),
            validate_only=False,
        )
        answer = await self._ask(
            request, _CREATE_PARTITIONS, lambda a: [t.error_code for t in a.results]
        )
        for found in answer.results:
            _raise(found.error_code, found.error_message)

    async def elect_leaders(
        self, tps: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, Result]:
        """Preferred (or unclean) leaders; None means all partitions."""
        topics = None
        if tps is not None:
            topics = [
                ElectLeadersRequest.TopicPartitions(topic=topic, partitions=partitions)
                for topic, partitions in _by_topic(tps).items()
            ]
        request = ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=topics,
            timeout_ms=int(self.timeout_s * 1000),
        )
        answer = await self._ask(request, _ELECT_LEADERS, lambda a: [a.error_code])
        _raise(answer.error_code, None)
        return {
            TopicPartition(t.topic, p.partition_id): (code_of(p.error_code), p.error_message)
            for t in answer.replica_election_results
            for p in t.partition_result
        }

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Result]:
        """Replicas wanted of each partition; None cancels a reassignment under way."""
        topic_class = AlterPartitionReassignmentsRequest.ReassignableTopic
        topics: dict[str, list[Any]] = {}
        for tp, replicas in targets.items():
            partition = topic_class.ReassignablePartition(
                partition_index=tp.partition,
                replicas=None if replicas is None else list(replicas),
            )
            topics.setdefault(tp.topic, []).append(partition)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=int(self.timeout_s * 1000),
            topics=[topic_class(name=name, partitions=ps) for name, ps in topics.items()],
        )
        answer = await self._ask(request, _REASSIGNMENTS, lambda a: [a.error_code])
        _raise(answer.error_code, answer.error_message)
        return {
            TopicPartition(t.name, p.partition_index): (code_of(p.error_code), p.error_message)
            for t in answer.responses
            for p in t.partitions
        }

    async def list_partition_reassignments(
        self, tps: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Reassignments under way, of these partitions or of all."""
        topics = None
        if tps is not None:
            topics = [
                ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                    name=topic, partition_indexes=partitions
                )
                for topic, partitions in _by_topic(tps).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=int(self.timeout_s * 1000), topics=topics
        )
        answer = await self._ask(request, _REASSIGNMENTS, lambda a: [a.error_code])
        _raise(answer.error_code, answer.error_message)
        return {
            TopicPartition(t.name, p.partition_index): Reassignment(
                list(p.replicas), list(p.adding_replicas), list(p.removing_replicas)
            )
            for t in answer.topics
            for p in t.partitions
        }

    async def _ask(self, request: Any, version: int, codes: Any) -> Any:
        cluster = self._cluster
        deadline = trio.current_time() + self.timeout_s
        error: Exception = ApiError(ErrorCode.NOT_CONTROLLER, "no controller was found")
        while trio.current_time() < deadline:
            try:
                if cluster.stale or cluster.controller_id < 0:
                    await cluster.refresh()
                answer = await cluster.call(cluster.controller_id, request, version)
                if ErrorCode.NOT_CONTROLLER not in codes(answer):
                    return answer
                error = ApiError(ErrorCode.NOT_CONTROLLER)
            except OSError as exc:
                error = exc
            cluster.mark_stale()
            await trio.sleep(cluster.retry_backoff_s)
        raise error


def _by_topic(tps: Sequence[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in tps:
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


def _raise(number: int, detail: str | None) -> None:
    if number:
        raise ApiError(code_of(number), detail)
