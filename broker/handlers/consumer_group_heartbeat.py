"""ConsumerGroupHeartbeat, API 68, v0-1: a member joins, stays in or leaves a consumer group, and
gets its partitions (KIP-848).

Epoch 0 joins, -1 leaves, -2 leaves as a static member that comes back.  v1 has regular expressions,
and its members make up their own ids; in v0 the coordinator gives an id to one that has none.  The
answer goes out when its records are committed.  The API is offered while every registered broker
announces group.version, and is UNSUPPORTED_VERSION at other times.

Source: KafkaApis.handleConsumerGroupHeartbeat, GroupCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from highwater.broker.admin.group_answers import to_heartbeat
from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.group.consumer.heartbeats import (
    Beat,
    Heartbeat,
)
from highwater.broker.coordinator.group.consumer.members import Partitions
from highwater.broker.coordinator.group.consumer_groups import with_id
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.wire.messages import ConsumerGroupHeartbeatResponse

API = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    versions=(0, 1),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),),
        inside="Describe of each topic that the request names; without it, all is refused",
    ),
)


def handle(ctx: Context, request: Any) -> Reply:
    groups = ctx.services.groups

    def may_describe(topic: str) -> bool:
        return ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    try:
        for topic in request.subscribed_topic_names or ():
            if not may_describe(topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        beat = Heartbeat(
            member_id=request.member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=_topics(request.subscribed_topic_names),
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=_partitions(request.topic_partitions),
            client_id=ctx.client_id or "",
            client_host=f"/{ctx.peer[0]}",
        )
        if ctx.version == 0 and beat.epoch == 0:
            beat = with_id(beat, groups.new_id(""))
        ticket = Waiting(_response)
        groups.consumer_heartbeat(request.group_id, ctx.version, beat, ticket, may_describe)
    except ApiError as e:
        return _response(Beat(e.code, message=e.detail))
    return Delayed(ticket)


def _topics(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _partitions(owned: Any) -> Partitions | None:
    if owned is None:
        return None
    found: dict[bytes, frozenset[int]] = {}
    for topic in owned:
        topic_id = NO_ID if topic.topic_id is None else topic.topic_id.bytes
        if topic.partitions:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def _response(beat: Beat) -> Response:
    return to_heartbeat(ConsumerGroupHeartbeatResponse, beat)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(Beat(code))
