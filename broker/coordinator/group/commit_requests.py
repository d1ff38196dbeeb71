"""Parts shared by OffsetCommit and TxnOffsetCommit: a request's offsets, and an answer's errors."""

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
    """The offsets that can be committed, and an error for each of the others.  A topic is without
    a name if the request named it by an id that no topic has.

    `longest` is offset.metadata.max.bytes; the times are wall clock.
    """
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name or "", p.partition_index)
            text = p.committed_metadata or ""
            if topic.name is None:
                errors[tp] = ErrorCode.UNKNOWN_TOPIC_ID
            elif metadata.partition(tp) is None:
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
    """Builds an answer with `code` at every partition without an error of its own, each once;
    `message`, `topic` and `partition` are the API's classes."""
    asked: dict[tuple[str, Any], dict[int, None]] = {}
    for t in request.topics:
        indexes = asked.setdefault((t.name or "", getattr(t, "topic_id", None)), {})
        indexes.update((p.partition_index, None) for p in t.partitions)
    topics = [
        topic(
            name=name,
            **({} if topic_id is None else {"topic_id": topic_id}),
            partitions=[
                partition(
                    partition_index=index,
                    error_code=int(errors.get(TopicPartition(name, index), code)),
                )
                for index in indexes
            ],
        )
        for (name, topic_id), indexes in asked.items()
    ]
    names = {error.name: None for error in (*errors.values(), code) if error}
    return Response(message(topics=topics), error_names=tuple(names))
