"""OffsetCommit, API 8, v0-10: a member stores how far it has come.

The answer is given when the commit itself is committed.  v2-4 can set how long it is kept; v6 has
the leader epoch of the last record, v7 static members, v10 topic ids in place of names.  A member
of the consumer protocol names its epoch (v9) where another names its generation.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.group.commit_requests import Errors, answer, offsets_of
from highwater.broker.coordinator.group.records import NO_TIMESTAMP
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.request.response import Response
from highwater.kafka.config import LONG_MAX
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import NO_ID
from highwater.kafka.wire.messages import OffsetCommitResponse

FIRST_WITH_EPOCHS = 9
FIRST_WITH_IDS = 10


def _named(ctx: Context, request: Any) -> None:
    """Gives topics the names of their ids; one of no topic has none."""
    if ctx.version >= FIRST_WITH_IDS:
        for topic in request.topics:
            topic_id = NO_ID if topic.topic_id is None else topic.topic_id.bytes
            topic.name = ctx.services.metadata.topic_of(topic_id)


API = Api(
    key=8,
    name="OffsetCommit",
    versions=(0, 10),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),),
        each=of(ResourceType.TOPIC, Operation.READ, "name"),
        items=("topics",),
        answers="topics",
        named=_named,
    ),
)

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    _named(ctx, request)
    services = ctx.services
    now = services.world.clock.wall_ms()
    retention = request.retention_time_ms
    given = retention is not None and retention >= 0
    expire_ms = min(now + retention, LONG_MAX) if given else NO_TIMESTAMP
    longest = services.config.offset_metadata_max_bytes
    offsets, errors = offsets_of(request, services.metadata, longest, now, expire_ms)
    if not offsets:
        return _response(request, errors, ErrorCode.NONE)
    ticket = Waiting(lambda code: _response(request, errors, code))
    services.groups.commit(
        request.group_id,
        request.member_id or "",
        request.group_instance_id,
        -1
        if request.generation_id_or_member_epoch is None
        else request.generation_id_or_member_epoch,
        offsets,
        ticket,
        knows_epochs=ctx.version >= FIRST_WITH_EPOCHS,
    )
    return Delayed(ticket)


def _response(request: Any, errors: Errors, code: ErrorCode) -> Response:
    return answer(OffsetCommitResponse, _Topic, _Partition, request, errors, code)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    _named(ctx, request)
    return _response(request, {}, code)
