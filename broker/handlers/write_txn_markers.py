"""WriteTxnMarkers, API 27, v0-2: partition leaders write markers for a transaction coordinator.

A marker is a control batch.  It is appended with acks=all, whatever state the producer is in here:
the coordinator has decided.  Markers of an older coordinator (by coordinator epoch) and of an older
producer epoch are refused, and those of a connection that the coordinator has given up are not
taken (`membership.marker_fence`).  In a partition of __consumer_offsets the group coordinator is
told, too, as the offsets of the transaction count from there on.  While it is still loading the
answer is NOT_LEADER_OR_FOLLOWER, and the coordinator asks again.

v1 is a flexible version of the same.  v2 has the transaction.version: with version 2 a marker's
epoch is above that of the transaction which it ends, so one with the epoch of an open transaction
comes late, and would end the next one (KIP-1228).
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar, NamedTuple

from highwater.broker.context import Access, Api, Context, Delayed, Reply, cluster
from highwater.broker.coordinator.transaction.records import EPOCH_BUMPED
from highwater.broker.handlers.produce import ALL, Wait
from highwater.broker.log.parts import Origin
from highwater.broker.replica.partition import Partition
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.topic_names import GROUP_METADATA_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import WriteTxnMarkersResponse
from highwater.kafka.wire.records import Marker, build_marker

log = logging.getLogger(__name__)

API = Api(
    key=27,
    name="WriteTxnMarkers",
    versions=(0, 2),
    access=Access(whole=(cluster(Operation.ALTER, Operation.CLUSTER_ACTION),)),
)

_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Result.WritableTxnMarkerTopicResult
_Partition = _Topic.WritableTxnMarkerPartitionResult


class Place(NamedTuple):
    """One marker in one partition; `marker` counts the request's entries."""

    marker: int
    tp: TopicPartition


def handle(ctx: Context, request: Any) -> Reply:
    if not ctx.services.marker_fence.admit(ctx.client_id, ctx.connection_number):
        log.info("%s: markers of a connection that its coordinator gave up", ctx.connection_id)
        return NoResponse(close=True)
    codes: dict[Place, ErrorCode] = {}
    waiting: dict[Place, Wait] = {}
    for index, entry in enumerate(request.markers):
        for topic in entry.topics:
            for partition in topic.partition_indexes:
                place = Place(index, TopicPartition(topic.name, partition))
                try:
                    waiting[place] = _append(ctx, entry, place.tp)
                except ApiError as e:
                    codes[place] = e.code
                    if e.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                        log.info("%s: %s", place.tp, e.detail)
    return Delayed(DelayedMarkers(ctx, request, codes, waiting))


def _append(ctx: Context, entry: Any, tp: TopicPartition) -> Wait:
    services, commit = ctx.services, bool(entry.transaction_result)
    of_group = tp.topic == GROUP_METADATA_TOPIC
    if of_group and not services.groups.takes_markers(tp):
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    batch = build_marker(
        Marker(commit, entry.coordinator_epoch),
        entry.producer_id,
        entry.producer_epoch,
        services.world.clock.wall_ms(),
    )
    partition = services.replicas.partition(tp)
    if entry.transaction_version >= EPOCH_BUMPED:
        _check_epoch(partition, entry)
    info = services.replicas.append(partition, memoryview(batch), ALL, Origin.COORDINATOR)
    end_offset = info.last_offset + 1
    if of_group:
        services.groups.marker_appended(tp, entry.producer_id, commit, end_offset)
    return Wait(partition, end_offset)


def _check_epoch(partition: Partition, entry: Any) -> None:
    known = partition.leader_log().producers.get(entry.producer_id)
    if known is not None and known.txn_first_offset >= 0 and known.epoch >= entry.producer_epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker of epoch {entry.producer_epoch} cannot end a transaction of {known.epoch}",
        )


class DelayedMarkers(DelayedOperation):
    """Waits for the HW of each partition, like an acks=all Produce."""

    kind: ClassVar[str] = "Produce"

    def __init__(
        self,
        ctx: Context,
        request: Any,
        codes: dict[Place, ErrorCode],
        waiting: dict[Place, Wait],
    ) -> None:
        self.request = request
        self.codes = codes
        self.waiting = waiting
        self.keys = list(dict.fromkeys(place.tp for place in waiting))
        self.timeout_ms = ctx.services.config.request_timeout_ms

    def try_complete(self) -> Response | None:
        for place, wait in list(self.waiting.items()):
            code = wait.partition.committed(wait.required_offset, wait.generation)
            if code is not None:
                del self.waiting[place]
                self.codes[place] = code
        return None if self.waiting else _response(self.request, self.codes)

    def on_expire(self) -> Response:
        self.codes.update(dict.fromkeys(self.waiting, ErrorCode.REQUEST_TIMED_OUT))
        return _response(self.request, self.codes)


def _response(request: Any, codes: dict[Place, ErrorCode]) -> Response:
    markers = [
        _Result(
            producer_id=entry.producer_id,
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=[
                        _Partition(
                            partition_index=p,
                            error_code=int(codes[Place(index, TopicPartition(topic.name, p))]),
                        )
                        for p in topic.partition_indexes
                    ],
                )
                for topic in entry.topics
            ],
        )
        for index, entry in enumerate(request.markers)
    ]
    names = {code.name: None for code in codes.values() if code}
    return Response(WriteTxnMarkersResponse(markers=markers), error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    codes = {
        Place(index, TopicPartition(topic.name, p)): code
        for index, entry in enumerate(request.markers)
        for topic in entry.topics
        for p in topic.partition_indexes
    }
    return _response(request, codes)
