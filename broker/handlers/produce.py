"""Produce, API 0, v3-9: appends record batches as leader, and answers as `acks` asks.

acks=0: no answer; an error closes the connection, which is how the client learns that its metadata
is old. acks=1: answered after the local append.  acks=-1: waits in the purgatory until the HW has
passed the last appended offset, that is until every member of the ISR has it; refused below
min.insync.replicas.  Anything else: INVALID_REQUIRED_ACKS.

ApiVersions offers v0 as well, as older librdkafka stops compressing otherwise; v0-2 carry the old
message formats and are answered UNSUPPORTED_FOR_MESSAGE_FORMAT.  Deviation: no down-conversion of
any kind.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar

from broker.context import Api, Context, Delayed, NoResponse, Reply, Response
from broker.purgatory import DelayedOperation
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.types import TopicPartition
from highwater.common.wire.codec import BadMessage
from highwater.common.wire.compression import Compression
from highwater.common.wire.produce import (
    MIN_VERSION,
    PartitionResult,
    parse_produce,
    produce_response,
)
from highwater.common.wire.records import BatchHeader, require_keys, validate_produce

API = Api(key=0, name="Produce", versions=(0, 9), raw=True)

ALL = -1
ZSTD_VERSION = 7
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


def handle(ctx: Context, body: memoryview) -> Reply:
    if ctx.version < MIN_VERSION:
        raise BadMessage(f"Produce v{ctx.version} carries a message format older than v2")
    try:
        request = parse_produce(body, ctx.version)
    except (struct.error, IndexError, ValueError) as e:
        raise BadMessage(f"a Produce request that does not parse: {e}") from e
    replicas = ctx.services.replicas
    if request.acks not in (-1, 0, 1):
        error = int(ErrorCode.INVALID_REQUIRED_ACKS)
        results = [PartitionResult(tp, error) for tp, _ in request.partitions]
        return _answer(ctx, results)
    results = []
    waiting: dict[int, Wait] = {}
    for tp, records in request.partitions:
        result, wait = append(replicas, tp, records, ctx.version, request.acks)
        if wait is not None:
            waiting[len(results)] = wait
        results.append(result)
    if request.acks == 0:
        return NoResponse(close=any(r.error for r in results))
    if not waiting:
        return _answer(ctx, results)
    operation = DelayedProduce(ctx, results, waiting, request.timeout_ms)
    done = operation.try_complete()
    return done if done is not None else Delayed(operation)


class Wait:
    """One partition of an acks=all request: appended, and not yet known to be committed."""

    __slots__ = ("generation", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.generation = partition.generation


def append(
    replicas: ReplicaManager,
    tp: TopicPartition,
    records: memoryview | None,
    version: int,
    acks: int,
) -> tuple[PartitionResult, Wait | None]:
    """Validates and appends one partition's batches."""
    stats = None
    try:
        if tp.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = replicas.partition(tp)
        stats = replicas.topic_stats[tp.topic]
        stats.total_produce += 1
        limit = partition.leader_log().config.max_message_bytes
        headers = validate_produce(records if records is not None else memoryview(b""), limit)
        assert records is not None
        _check_records(partition, records, headers[0], version)
        info, partition = replicas.append(tp, records, headers, acks)
    except ApiError as e:
        if stats is not None:
            size = len(records) if records is not None else 0
            replicas.topic_stats.produce_failed(tp.topic, e, size)
        return PartitionResult(tp, int(e.code), message=e.detail), None
    stats.messages_in += info.last_offset - info.base_offset + 1
    stats.bytes_in += len(records)
    result = PartitionResult(
        tp, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset
    )
    wait = Wait(partition, info.last_offset + 1) if acks == ALL else None
    return result, wait


def _check_records(
    partition: Partition, records: memoryview, header: BatchHeader, version: int
) -> None:
    """What needs more than the batch's header; raises ApiError."""
    if version < ZSTD_VERSION and header.compression == Compression.ZSTD:
        detail = f"zstd is for Produce v{ZSTD_VERSION} and later, and this is v{version}"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, detail)
    if partition.leader_log().config.compacts:
        require_keys(records, header)


def _answer(ctx: Context, results: Sequence[PartitionResult]) -> Response:
    names = tuple(ErrorCode(r.error).name for r in results if r.error)
    return Response(parts=[produce_response(list(results), ctx.version)], error_names=names)


class DelayedProduce(DelayedOperation):
    """Waits for each appended partition's HW.  A duplicate of a batch waits as its first did."""

    kind: ClassVar[str] = "Produce"
    overlaps: ClassVar[bool] = True

    def __init__(
        self,
        ctx: Context,
        results: list[PartitionResult],
        waiting: dict[int, Wait],
        timeout_ms: int,
    ) -> None:
        self.ctx = ctx
        self.results = results
        self.waiting = waiting
        self.keys = [w.partition.tp for w in waiting.values()]
        self.timeout_ms = timeout_ms

    def try_complete(self) -> Response | None:
        for index, wait in list(self.waiting.items()):
            code = wait.partition.committed(wait.required_offset, wait.generation)
            if code is not None:
                self._settle(index, code)
        return None if self.waiting else _answer(self.ctx, self.results)

    def on_expire(self) -> Response:
        for index in list(self.waiting):
            self._settle(index, ErrorCode.REQUEST_TIMED_OUT)
        return _answer(self.ctx, self.results)

    def _settle(self, index: int, code: ErrorCode) -> None:
        del self.waiting[index]
        if code is not ErrorCode.NONE:
            self.results[index] = PartitionResult(self.results[index].tp, int(code))
