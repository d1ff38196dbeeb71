"""ShareGroupHeartbeat, API 76, v1: a member joins, stays in or leaves a share group, and gets its
partitions (KIP-932).

Epoch 0 joins, -1 leaves.  Members make up their own ids.  The answer goes out when its records are
committed.  The API is offered while every registered broker announces share.version, and is
UNSUPPORTED_VERSION at other times.

Source: KafkaApis.handleShareGroupHeartbeat, GroupCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.group_answers import to_heartbeat
from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.group.consumer.heartbeats import Beat, Heartbeat
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import ShareGroupHeartbeatResponse

API = Api(
    key=76,
    name="ShareGroupHeartbeat",
    versions=(1, 1),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),),
        inside="Describe of each topic that the request names; without it, all is refused",
    ),
)


def handle(ctx: Context, request: Any) -> Reply:
    topics = request.subscribed_topic_names
    try:
        for topic in topics or ():
            if not ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        beat = Heartbeat(
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=None if topics is None else tuple(topics),
            client_id=ctx.client_id or "",
            client_host=f"/{ctx.peer[0]}",
        )
        ticket = Waiting(_response)
        ctx.services.groups.share_heartbeat(request.group_id, beat, ticket)
    except ApiError as e:
        return _response(Beat(e.code, message=e.detail))
    return Delayed(ticket)


def _response(beat: Beat) -> Response:
    return to_heartbeat(ShareGroupHeartbeatResponse, beat)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(Beat(code))
