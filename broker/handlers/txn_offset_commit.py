"""TxnOffsetCommit, API 28, v0-4: commits a group's offsets as part of a transaction.

They are appended to the group's partition of __consumer_offsets as a batch of the transaction, and
count when its commit marker is there; until then OffsetFetch with require_stable is told to wait.
Before the first of a transaction the transaction coordinator is asked whether that partition
belongs to it (KIP-890).  v2 brings the leader epoch of the last record, v3 the member (KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.context import Api, Context, Delayed, Reply, Response
from broker.coordinator.group.offsets import commit_error
from broker.coordinator.group.records import CommittedOffset
from broker.coordinator.group.waiting import Waiting
from broker.coordinator.transaction.transaction import Identity
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.messages import TxnOffsetCommitResponse

API = Api(key=28, name="TxnOffsetCommit", versions=(0, 4))

FIRST_WITH_MEMBER = 3
FIRST_WITH_ABORTABLE = 4
_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = _Topic.TxnOffsetCommitResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    services = ctx.services
    offsets, errors = _offsets(ctx, request)
    if not offsets:
        return _response(request, errors, ErrorCode.NONE)
    producer = Identity(request.producer_id, request.producer_epoch)
    partition = services.groups.partition_for_commit(request.group_id)
    ticket = Waiting(lambda code: _response(request, errors, code))
    verification = partition.verify_transaction(
        producer.producer_id, producer.epoch, -1, services.world.clock.wall_ms()
    )
    member: tuple[str, str | None, int] = ("", None, -1)
    if ctx.version >= FIRST_WITH_MEMBER:
        member = (request.member_id, request.group_instance_id, request.generation_id)

    def commit(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        code = codes.get(partition.tp, ErrorCode.NONE)
        if code is ErrorCode.INVALID_TXN_STATE and ctx.version >= FIRST_WITH_ABORTABLE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        try:
            if code is not ErrorCode.NONE:
                raise ApiError(commit_error(code))
            services.groups.commit_in_transaction(
                request.group_id,
                member,
                (producer.producer_id, producer.epoch),
                offsets,
                ticket,
                verification,
            )
        except ApiError as e:
            ticket.answer = e.code
            services.purgatories.check(Waiting.kind, ticket.keys)

    if verification is None:
        commit({})
    else:
        services.transactions.verifier.ask(
            request.transactional_id, producer, [partition.tp], commit
        )
    done = ticket.try_complete()
    return done if done is not None else Delayed(ticket)


def _offsets(
    ctx: Context, request: Any
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, ErrorCode]]:
    services = ctx.services
    now = services.world.clock.wall_ms()
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
                    p.committed_offset, -1 if epoch is None else epoch, metadata, now
                )
    return offsets, errors


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
    return Response(TxnOffsetCommitResponse(topics=topics), error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(request, {}, code)
