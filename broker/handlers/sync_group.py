"""SyncGroup, API 14, v0-5: a member receives its assignment from the group's leader.

It waits until the leader's assignment is stored.  v3 has static members, v5 names the protocol,
which no request may leave out.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.group.protocol import Sync, Synced
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import SyncGroupResponse

API = Api(
    key=14,
    name="SyncGroup",
    versions=(0, 5),
    access=Access(whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),)),
)


FIRST_WITH_PROTOCOL = 5


def handle(ctx: Context, request: Any) -> Reply:
    if ctx.version >= FIRST_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return error_response(ctx, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    sync = Sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        tuple((a.member_id, bytes(a.assignment)) for a in request.assignments),
    )
    ticket = Waiting(_response)
    ctx.services.groups.sync(request.group_id, sync, ticket)
    return Delayed(ticket)


def _response(synced: Synced) -> Response:
    answer = SyncGroupResponse(
        error_code=int(synced.error),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
    return Response(answer, error_names=(synced.error.name,) if synced.error else ())


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(Synced(code))
