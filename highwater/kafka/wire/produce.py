"""Produce, API 0, by hand: the one request whose payload stays in the buffer that it came in.

`parse_produce` walks a request of v0 to v13 and gives each partition's records as a memoryview
into the request's own buffer; `produce_response` packs the answer by struct, forty times faster
than a general codec. Versions below 3 carry the old message formats.
Source: ProduceRequest.json and ProduceResponse.json of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from highwater.kafka.topic_ids import NO_ID, unknown_name
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.node_endpoints import leader_tag
from highwater.kafka.wire.varint import (
    MAX_ELEMENTS,
    compact_string,
    read_compact_string,
    read_id,
    read_uvarint,
    skip_tags,
    uvarint,
    within,
)

FIRST_WITH_BATCHES, MAX_VERSION, FLEXIBLE = 3, 13, 9
FIRST_THROTTLED = 1
TELLS_LEADER = 10
ABORTABLE = 11
"""From v11 on a client knows TRANSACTION_ABORTABLE (KIP-890)."""
BY_ID = 13
"""From v13 on topics are named by their ids (KIP-516)."""

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_HI = struct.Struct(">hi")
_II = struct.Struct(">ii")
_PARTITION = struct.Struct(">ihqqq")


class ProduceRequest(NamedTuple):
    """`partitions` keeps the order of the request; `records` is None where the client sent null.

    Where topics are named by their ids, a topic of no name has `unknown_name` of its id, which no
    topic can have.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[tuple[TopicPartition, memoryview | None]]
    topic_ids: Mapping[str, bytes] = {}
    """Topic -> the id by which the request named it; from v13 on."""


class PartitionResult(NamedTuple):
    tp: TopicPartition
    error: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    leader: tuple[int, int] | None = None
    """(broker, leader epoch), where the error was a wrong leader; from v10 on."""
    refused: tuple[tuple[int, str], ...] = ()
    """The index of each bad record in its batch, and its mistake; from v8 on."""


def _string(view: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = _H.unpack_from(view, at)
    at += 2
    if length < 0:
        return None, at
    return str(view[at : at + length], "utf-8", "replace"), at + length


def parse_produce(
    body: memoryview, version: int, name_of: Callable[[bytes], str | None] | None = None
) -> ProduceRequest:
    """The request in a body; of a partition that is named more than once the last one counts.
    `name_of` gives the names of topics that are named by their ids.

    Raises struct.error, IndexError or ValueError if it is malformed.
    """
    if version >= FLEXIBLE:
        found = _parse_flexible(body, version, name_of)
    else:
        found = _parse_plain(body, version)
    if len(found.partitions) > 1:
        return found._replace(partitions=list(dict(found.partitions).items()))
    return found


def _parse_plain(body: memoryview, version: int) -> ProduceRequest:
    txn, at = _string(body, 0) if version >= FIRST_WITH_BATCHES else (None, 0)
    acks, timeout_ms = _HI.unpack_from(body, at)
    (topics,) = _I.unpack_from(body, at + 6)
    at += 10
    out: list[tuple[TopicPartition, memoryview | None]] = []
    left = within(MAX_ELEMENTS, topics)
    for _ in range(topics):
        name, at = _string(body, at)
        (count,) = _I.unpack_from(body, at)
        at += 4
        left = within(left, count)
        for _ in range(count):
            index, size = _II.unpack_from(body, at)
            at += 8
            out.append((TopicPartition(name or "", index), _records(body, at, size)))
            at += max(size, 0)
    return ProduceRequest(txn, acks, timeout_ms, out)


def _parse_flexible(
    body: memoryview, version: int, name_of: Callable[[bytes], str | None] | None
) -> ProduceRequest:
    length, at = read_uvarint(body, 0)
    txn = None
    if length:
        txn, at = str(body[at : at + length - 1], "utf-8", "replace"), at + length - 1
    acks, timeout_ms = _HI.unpack_from(body, at)
    topics, at = read_uvarint(body, at + 6)
    out: list[tuple[TopicPartition, memoryview | None]] = []
    topic_ids: dict[str, bytes] = {}
    left = within(MAX_ELEMENTS, topics - 1)
    for _ in range(topics - 1):
        if version >= BY_ID:
            topic_id, at = read_id(body, at)
            name = (name_of(topic_id) if name_of else None) or unknown_name(topic_id)
            topic_ids[name] = topic_id
        else:
            name, at = read_compact_string(body, at)
        count, at = read_uvarint(body, at)
        left = within(left, count - 1)
        for _ in range(count - 1):
            (index,) = _I.unpack_from(body, at)
            size, at = read_uvarint(body, at + 4)
            out.append((TopicPartition(name, index), _records(body, at, size - 1)))
            at = skip_tags(body, at + max(size - 1, 0))
        at = skip_tags(body, at)
    return ProduceRequest(txn, acks, timeout_ms, out, topic_ids)


def _records(body: memoryview, at: int, size: int) -> memoryview | None:
    if size < 0:
        return None
    if at + size > len(body):
        raise ValueError(f"records of {size} bytes reach past the end of the request")
    return body[at : at + size]


def produce_response(
    results: list[PartitionResult],
    version: int,
    throttle_ms: int = 0,
    topic_ids: Mapping[str, bytes] | None = None,
) -> bytes:
    """The body of the answer, v0 to v13; results are grouped by topic in the request's order, and
    named by `topic_ids` from v13 on.

    From v9 on it ends with an empty section of tags, which `endpoint_tags` can replace.
    """
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.tp.topic, []).append(result)
    flexible = version >= FLEXIBLE
    out = bytearray(uvarint(len(topics) + 1) if flexible else _I.pack(len(topics)))
    for name, group in topics.items():
        if flexible:
            if version >= BY_ID:
                out += topic_ids[name] if topic_ids is not None else NO_ID
            else:
                out += compact_string(name)
            out += uvarint(len(group) + 1)
        else:
            data = name.encode()
            out += _H.pack(len(data)) + data + _I.pack(len(group))
        for r in group:
            packed = _PARTITION.pack(
                r.tp.partition, r.error, r.base_offset, r.log_append_time_ms, r.log_start_offset
            )
            out += packed[: _fields_of(version)]
            if version >= 8:
                out += _record_errors(r.refused, flexible) + _message(r.message, flexible)
                if flexible:
                    told = r.leader if version >= TELLS_LEADER else None
                    out += b"\0" if told is None else b"\1" + leader_tag(0, told)
        if flexible:
            out += b"\0"
    if version >= FIRST_THROTTLED:
        out += _I.pack(throttle_ms)
    if flexible:
        out += b"\0"
    return bytes(out)


def _fields_of(version: int) -> int:
    """The bytes of a partition's fields: log_append_time_ms came in v2, log_start_offset in v5."""
    return _PARTITION.size - (0 if version >= 5 else 8 if version >= 2 else 16)


def _record_errors(refused: tuple[tuple[int, str], ...], flexible: bool) -> bytes:
    out = bytearray(uvarint(len(refused) + 1) if flexible else _I.pack(len(refused)))
    for index, text in refused:
        out += _I.pack(index) + _message(text, flexible)
        if flexible:
            out += b"\0"
    return bytes(out)


def _message(text: str | None, flexible: bool) -> bytes:
    if flexible:
        return compact_string(text) if text else b"\0"
    data = text.encode() if text else None
    return _H.pack(-1) if data is None else _H.pack(len(data)) + data
