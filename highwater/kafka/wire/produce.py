"""Produce, API 0, by hand: the one request whose payload stays in the buffer that it came in.

`parse_produce` walks a request of v0 to v10 and gives each partition's records as a memoryview
into the request's own buffer; `produce_response` packs the answer by struct, forty times faster
than a general codec. Versions below 3 carry the old message formats.
Source: ProduceRequest.json and ProduceResponse.json of Apache Kafka.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.varint import (
    MAX_ELEMENTS,
    compact_string,
    read_compact_string,
    read_uvarint,
    skip_tags,
    uvarint,
    within,
)

FIRST_WITH_BATCHES, MAX_VERSION, FLEXIBLE = 3, 10, 9
FIRST_THROTTLED = 1
TELLS_LEADER = 10
"""From v10 on an answer names the leader (KIP-951), which saves clients a metadata request."""

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_HI = struct.Struct(">hi")
_II = struct.Struct(">ii")
_PARTITION = struct.Struct(">ihqqq")


class ProduceRequest(NamedTuple):
    """`partitions` keeps the order of the request; `records` is None where the client sent null."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[tuple[TopicPartition, memoryview | None]]


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


class NodeEndpoint(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


def _string(view: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = _H.unpack_from(view, at)
    at += 2
    if length < 0:
        return None, at
    return str(view[at : at + length], "utf-8", "replace"), at + length


def parse_produce(body: memoryview, version: int) -> ProduceRequest:
    """The request in a body; of a partition that is named more than once the last one counts.

    Raises struct.error, IndexError or ValueError if it is malformed.
    """
    found = _parse_flexible(body) if version >= FLEXIBLE else _parse_plain(body, version)
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


def _parse_flexible(body: memoryview) -> ProduceRequest:
    length, at = read_uvarint(body, 0)
    txn = None
    if length:
        txn, at = str(body[at : at + length - 1], "utf-8", "replace"), at + length - 1
    acks, timeout_ms = _HI.unpack_from(body, at)
    topics, at = read_uvarint(body, at + 6)
    out: list[tuple[TopicPartition, memoryview | None]] = []
    left = within(MAX_ELEMENTS, topics - 1)
    for _ in range(topics - 1):
        name, at = read_compact_string(body, at)
        count, at = read_uvarint(body, at)
        left = within(left, count - 1)
        for _ in range(count - 1):
            (index,) = _I.unpack_from(body, at)
            size, at = read_uvarint(body, at + 4)
            out.append((TopicPartition(name, index), _records(body, at, size - 1)))
            at = skip_tags(body, at + max(size - 1, 0))
        at = skip_tags(body, at)
    return ProduceRequest(txn, acks, timeout_ms, out)


def _records(body: memoryview, at: int, size: int) -> memoryview | None:
    if size < 0:
        return None
    if at + size > len(body):
        raise ValueError(f"records of {size} bytes reach past the end of the request")
    return body[at : at + size]


def produce_response(results: list[PartitionResult], version: int, throttle_ms: int = 0) -> bytes:
    """The body of the answer, v0 to v10; results are grouped by topic in the request's order.

    From v9 on it ends with an empty section of tags, which `endpoint_tags` can replace.
    """
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.tp.topic, []).append(result)
    flexible = version >= FLEXIBLE
    out = bytearray(uvarint(len(topics) + 1) if flexible else _I.pack(len(topics)))
    for name, group in topics.items():
        if flexible:
            out += compact_string(name) + uvarint(len(group) + 1)
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
                    out += _leader_tag(r.leader if version >= TELLS_LEADER else None)
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


def _leader_tag(leader: tuple[int, int] | None) -> bytes:
    """A partition's tags: none, or CurrentLeader, which has no tags itself."""
    return b"\0" if leader is None else b"\x01\x00\x09" + _II.pack(*leader) + b"\0"


def endpoint_tags(endpoints: list[NodeEndpoint]) -> bytes:
    """The answer's tags: the endpoints of the leaders that its partitions name."""
    data = bytearray(uvarint(len(endpoints) + 1))
    for e in endpoints:
        data += _I.pack(e.broker_id) + compact_string(e.host) + _I.pack(e.port)
        data += (b"\0" if e.rack is None else compact_string(e.rack)) + b"\0"
    return b"\x01\x00" + uvarint(len(data)) + data
