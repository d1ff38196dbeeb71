"""Shared parts of OffsetCommit and TxnOffsetCommit: the offsets in a request, errors in answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.broker.coordinator.group.records import NO_TIMESTAMP, CommittedOffset
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

Errors = Mapping[TopicPartition, ErrorCode]


def offsets_of(
    request: Any, metadata: MetadataCache, longest: int, now_ms: int, expire_ms: int = NO_TIMESTAMP
) -> tuple[dict[TopicPartition, CommittedOffset], Errors]:
    """The offsets that can be committed, and an error for each of the others.

    `longest` is offset.metadata.max.bytes; the times are wall clock.
    """
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            text = p.committed_metadata or ""
            if metadata.partition(tp) is None:
                errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(text.encode()) > longest:
                errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = p.committed_leader_epoch
                offsets[tp] = CommittedOffset(
                    p.committed_offset, -1 if epoch is None else epoch, text, now_ms, expire_ms
                )
    return offsets, errors


def answer(
    message: Any, topic: Any, partition: Any, request: Any, errors: Errors, code: ErrorCode
) -> Response:
    """Answers `code` once at every partition without an error of its own; the classes are the
    API's."""
    asked: dict[str, dict[int, None]] = {}
    for t in request.topics:
        indexes = asked.setdefault(t.name, {})
        indexes.update((p.partition_index, None) for p in t.partitions)
    topics = [
        topic(
            name=name,
            partitions=[
                partition(
                    partition_index=index,
                    error_code=int(errors.get(TopicPartition(name, index), code)),
                )
                for index in indexes
            ],
        )
        for name, indexes in asked.items()
    ]
    names = {error.name: None for error in (*errors.values(), code) if error}
    return Response(message(topics=topics), error_names=tuple(names))
