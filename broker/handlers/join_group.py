"""JoinGroup, API 11, v0-9: a member joins its group's next generation.

It waits until all members have joined.  v1 has its own rebalance time-out, v4 tells a new member to
come again with the id that it is given (KIP-394), v5 has static members, v7 the protocol's type in
the answer, v9 lets a static leader come back without a new assignment.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.group.protocol import Join, Joined
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import JoinGroupResponse

API = Api(
    key=11,
    name="JoinGroup",
    versions=(0, 9),
    access=Access(whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),)),
)

FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_THAT_NEEDS_KNOWN_ID = 4
FIRST_THAT_SKIPS_ASSIGNMENT = 9


def handle(ctx: Context, request: Any) -> Reply:
    groups = ctx.services.groups
    instance_id = request.group_instance_id
    client_id = ctx.client_id or ""
    rebalance_ms = request.rebalance_timeout_ms
    join = Join(
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{ctx.peer[0]}",
        rebalance_timeout_ms=(
            rebalance_ms
            if ctx.version >= FIRST_WITH_REBALANCE_TIMEOUT
            else request.session_timeout_ms
        ),
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        new_id=groups.new_id(client_id if instance_id is None else instance_id),
        needs_known_id=ctx.version >= FIRST_THAT_NEEDS_KNOWN_ID and instance_id is None,
        may_skip_assignment=ctx.version >= FIRST_THAT_SKIPS_ASSIGNMENT,
    )
    ticket = Waiting(lambda answer: _response(ctx, answer))
    groups.join(request.group_id, join, ticket)
    return Delayed(ticket)


def _response(ctx: Context, joined: Joined) -> Response:
    answer = JoinGroupResponse(
        error_code=int(joined.error),
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        # before v7 the name of the protocol cannot be null
        protocol_name=joined.protocol if ctx.version >= 7 else joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in joined.members
        ],
    )
    return Response(answer, error_names=(joined.error.name,) if joined.error else ())


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(ctx, Joined(code, request.member_id))
