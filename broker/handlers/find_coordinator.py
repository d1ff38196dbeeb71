"""FindCoordinator, API 10, v0-6: the broker that coordinates a group, a transactional id or the
state of a share-partition.

A group's coordinator leads the partition of __consumer_offsets to which the group belongs.  That
topic is created at the first request for a group.  Transactional ids (v1) have __transaction_state
in the same way, and share-partitions (v6) __share_group_state, while share.version is in use: their
keys are of the form group:topic id:partition, and brokers alone may ask.  While there is no leader
the answer is COORDINATOR_NOT_AVAILABLE, and clients ask again.  From v4 on a request has several
keys.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from highwater.broker.admin.topic_znodes import auto_create
from highwater.broker.context import Access, Api, Context, Need, Reply
from highwater.broker.coordinator.runtime import Coordinator
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import SHARE_VERSION
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import from_text
from highwater.kafka.wire.messages import FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_WITH_SHARE = 6


def _needs(key: str, request: Any) -> tuple[Need, ...]:
    if request.key_type == SHARE:
        return (Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)
    kind = ResourceType.TRANSACTIONAL_ID if request.key_type == TRANSACTION else ResourceType.GROUP
    return (Need(Operation.DESCRIBE, kind, key),)


def _one_needs(request: Any, _: Any) -> tuple[Need, ...]:
    return () if request.coordinator_keys else _needs(request.key or "", request)


API = Api(
    key=10,
    name="FindCoordinator",
    versions=(0, 6),
    access=Access(
        whole=(_one_needs,), each=_needs, items=("coordinator_keys",), answers="coordinators"
    ),
)

FIRST_WITH_MANY = 4
NOWHERE: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}


def handle(ctx: Context, request: Any) -> Reply | Awaitable[Reply]:
    kind = request.key_type if ctx.version >= 1 else GROUP
    if kind not in (GROUP, TRANSACTION, SHARE) or (
        kind == SHARE and ctx.version < FIRST_WITH_SHARE
    ):
        return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
    if kind == SHARE and SHARE_VERSION not in dict(ctx.services.metadata.features):
        return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    topic = _coordinator(ctx, kind).topic
    if not ctx.services.metadata.has_topic(topic):
        return _create(ctx, request, kind, topic)
    if ctx.version < FIRST_WITH_MANY:
        return _one(ctx, request, kind)
    found = [(key, *_find(ctx, kind, key)) for key in request.coordinator_keys]
    coordinators = [
        FindCoordinatorResponse.Coordinator(
            key=key, error_code=int(code), error_message=None, **where
        )
        for key, code, where in found
    ]
    names = tuple(code.name for _, code, _ in found if code)
    return Response(FindCoordinatorResponse(coordinators=coordinators), error_names=names)


def _one(ctx: Context, request: Any, kind: int) -> Response:
    code, where = _find(ctx, kind, request.key)
    answer = FindCoordinatorResponse(error_code=int(code), error_message=None, **where)
    return Response(answer, error_names=(code.name,) if code else ())


async def _create(ctx: Context, request: Any, kind: int, topic: str) -> Reply:
    code = await auto_create(ctx.services, topic)
    if code is ErrorCode.INVALID_REPLICATION_FACTOR:
        brokers = len(ctx.services.metadata.brokers())
        why = f"its topic is to have more replicas than there are brokers now ({brokers})"
        _coordinator(ctx, kind).not_available(topic, why)
    elif code is not ErrorCode.LEADER_NOT_AVAILABLE:
        _coordinator(ctx, kind).not_available(topic, f"it cannot be created: {code.name}")
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _find(ctx: Context, kind: int, key: str) -> tuple[ErrorCode, dict[str, Any]]:
    """The error, and where the coordinator is."""
    if kind == SHARE and not _is_share_partition(key):
        return ErrorCode.INVALID_REQUEST, NOWHERE
    metadata, coordinator = ctx.services.metadata, _coordinator(ctx, kind)
    tp = coordinator.partition_of(key)
    leader = metadata.leader_of(tp)
    endpoint = metadata.endpoint_of(leader, ctx.listener) if leader >= 0 else None
    if endpoint is not None:
        where = {"node_id": leader, "host": endpoint.host, "port": endpoint.port}
        return ErrorCode.NONE, where
    gone = f"its leader, broker {leader}, is not there" if leader >= 0 else "it has no leader"
    coordinator.not_available(str(tp), gone)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, NOWHERE


def _is_share_partition(key: str) -> bool:
    """Whether it is group:topic id:partition."""
    parts = key.split(":")
    try:
        from_text(parts[1])
        int(parts[2])
    except (IndexError, ValueError):
        return False
    return len(parts) == 3 and bool(parts[0].strip())


def _coordinator(ctx: Context, kind: int) -> Coordinator[Any, Any]:
    services = ctx.services
    return (services.groups, services.transactions, services.share_states)[kind]


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if ctx.version < FIRST_WITH_MANY:
        answer = FindCoordinatorResponse(error_code=int(code), error_message=None, **NOWHERE)
        return Response(answer, error_names=(code.name,))
    coordinators = [
        FindCoordinatorResponse.Coordinator(key=key, error_code=int(code), **NOWHERE)
        for key in request.coordinator_keys
    ]
    return Response(FindCoordinatorResponse(coordinators=coordinators), error_names=(code.name,))
