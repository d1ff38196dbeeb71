"""OffsetCommit, API 8, v0-9: a member says how far it has come.

Answered when the commit is committed itself.  v2-4 can say for how long it is kept; v6 brings the
leader epoch of the last record, v7 static members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.context import Api, Context, Delayed, Reply, Response
from broker.coordinator.group.records import NO_TIMESTAMP, CommittedOffset
from broker.coordinator.group.waiting import Waiting
from highwater.common.errors import ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.messages import OffsetCommitResponse

API = Api(key=8, name="OffsetCommit", versions=(0, 9))

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    services = ctx.services
    now = services.world.clock.wall_ms()
    retention = request.retention_time_ms
    expire_ms = NO_TIMESTAMP if retention is None or retention < 0 else now + retention
    longest = services.config.offset_metadata_max_bytes
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            metadata = p.committed_metadata or ""
            if services.metadata.partition(tp) is None:
                errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > longest:
                errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = p.committed_leader_epoch
                offsets[tp] = CommittedOffset(
                    p.committed_offset, -1 if epoch is None else epoch, metadata, now, expire_ms
                )
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
    )
    done = ticket.try_complete()
    return done if done is not None else Delayed(ticket)


def _response(
    request: Any, errors: Mapping[TopicPartition, ErrorCode], code: ErrorCode
) -> Response:
    """`code` at every partition that has no error of its own."""
    topics = [
        _Topic(
            name=t.name,
            partitions=[
                _Partition(
                    partition_index=p.partition_index,
                    error_code=int(errors.get(TopicPartition(t.name, p.partition_index), code)),
                )
                for p in t.partitions
            ],
        )
        for t in request.topics
    ]
    names = {error.name: None for error in (*errors.values(), code) if error}
    return Response(OffsetCommitResponse(topics=topics), error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(request, {}, code)
