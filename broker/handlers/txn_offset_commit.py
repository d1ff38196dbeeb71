"""TxnOffsetCommit, API 28, v0-5: commits a group's offsets as part of a transaction.

They are appended to the group's partition of __consumer_offsets as a batch of the transaction, and
count once its commit marker is there; until then OffsetFetch with require_stable is told to wait.
Before the first commit of a transaction the transaction coordinator is asked whether that partition
belongs to it, and from v5 on the coordinator adds it (KIP-890).  v2 has the leader epoch of the
last record, v3 the member (KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.coordinator.group.commit_requests import Errors, answer, offsets_of
from highwater.broker.coordinator.group.offsets import commit_error
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import TxnOffsetCommitResponse

API = Api(
    key=28,
    name="TxnOffsetCommit",
    versions=(0, 5),
    access=Access(
        whole=(
            of(ResourceType.TRANSACTIONAL_ID, Operation.WRITE, "transactional_id"),
            of(ResourceType.GROUP, Operation.READ, "group_id"),
        ),
        each=of(ResourceType.TOPIC, Operation.READ, "name"),
        items=("topics",),
        answers="topics",
    ),
)

FIRST_WITH_MEMBER = 3
FIRST_WITH_ABORTABLE = 4
ADDS_PARTITIONS = 5
_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = _Topic.TxnOffsetCommitResponsePartition


def handle(ctx: Context, request: Any) -> Reply:
    services = ctx.services
    longest, now = services.config.offset_metadata_max_bytes, services.world.clock.wall_ms()
    offsets, errors = offsets_of(request, services.metadata, longest, now)
    if not offsets:
        return _response(request, errors, ErrorCode.NONE)
    producer = Identity(request.producer_id, request.producer_epoch)
    partition = services.groups.partition_for_commit(request.group_id)
    ticket = Waiting(lambda code: _response(request, errors, code))
    adds = ctx.version >= ADDS_PARTITIONS
    verification = partition.verify_transaction(
        producer.producer_id, producer.epoch, -1, services.world.clock.wall_ms(), always=adds
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
            services.groups.answer(ticket, e.code)

    if verification is None:
        commit({})
    else:
        services.transactions.verifier.ask(
            request.transactional_id, producer, [partition.tp], commit, add=adds
        )
    return Delayed(ticket)


def _response(request: Any, errors: Errors, code: ErrorCode) -> Response:
    return answer(TxnOffsetCommitResponse, _Topic, _Partition, request, errors, code)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _response(request, {}, code)
