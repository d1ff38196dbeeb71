"""Produce v7 from the client's side: batches are sent as they are, uncopied."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.world.api import Buffer

_HEAD = Struct(">hii")
_PARTITION = Struct(">ii")
_RESULT = Struct(">ihqqq")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NULL = b"\xff\xff"


def produce_request(
    acks: int,
    timeout_s: float,
    batches: list[tuple[TopicPartition, bytearray]],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The body of a Produce v7 in parts; the batches are not copied."""
    topics: dict[str, list[tuple[int, bytearray]]] = {}
    for tp, records in batches:
        topics.setdefault(tp.topic, []).append((tp.partition, records))
    parts: list[Buffer] = []
    head = bytearray(_NULL)
    if transactional_id is not None:
        name = transactional_id.encode()
        head = bytearray(_INT16.pack(len(name)) + name)
    head += _HEAD.pack(acks, int(timeout_s * 1000), len(topics))
    for topic, partitions in topics.items():
        name = topic.encode()
        head += _INT16.pack(len(name)) + name + _INT32.pack(len(partitions))
        for partition, records in partitions:
            head += _PARTITION.pack(partition, len(records))
            parts += (head, records)
            head = bytearray()
    return parts


def parse_produce_response(body: memoryview) -> dict[TopicPartition, tuple[int, int, int]]:
    """Error, base offset and log append time of each partition of a Produce v7 answer."""
    found = {}
    (topics,) = _INT32.unpack_from(body)
    at = 4
    for _ in range(topics):
        (length,) = _INT16.unpack_from(body, at)
        topic = str(body[at + 2 : at + 2 + length], "utf-8")
        at += 2 + length
        (partitions,) = _INT32.unpack_from(body, at)
        at += 4
        for _ in range(partitions):
            index, error, offset, append_time, _ = _RESULT.unpack_from(body, at)
            at += _RESULT.size
            found[TopicPartition(topic, index)] = (error, offset, append_time)
    return found
