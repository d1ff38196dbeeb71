"""The answer to ShareFetch (API 78, v1 and v2), packed by hand: its records lie in segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from highwater.kafka.wire.node_endpoints import NodeEndpoint
from highwater.kafka.wire.varint import compact_string, uvarint

_HEAD = Struct(">ih")
_PARTITION = Struct(">ih")
_H = Struct(">h")
_I = Struct(">i")
_LEADER = Struct(">ii")
_ACQUIRED = Struct(">qqh")


@dataclass(slots=True)
class SharedPartition:
    """One partition of an answer."""

    topic_id: bytes
    index: int
    error: int = 0
    ack_error: int = 0
    ack_message: str | None = None
    leader: tuple[int, int] | None = None
    """The leader and its epoch, where this broker does not lead."""
    records: Any = b""
    size: int = 0
    acquired: Sequence[tuple[int, int, int]] = ()
    """(first, last, delivery count)."""


def share_fetch_parts(
    partitions: Iterable[SharedPartition],
    lock_ms: int,
    endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
    error: int = 0,
) -> list[Any]:
    """The body as parts to send in order: packed bytes, and the `records` as given."""
    topics: dict[bytes, list[SharedPartition]] = {}
    for p in partitions:
        topics.setdefault(p.topic_id, []).append(p)
    out: list[Any] = []
    pending = bytearray(_HEAD.pack(throttle_ms, error) + b"\0" + _I.pack(lock_ms))
    pending += uvarint(len(topics) + 1)
    for topic_id, group in topics.items():
        pending += topic_id + uvarint(len(group) + 1)
        for p in group:
            pending += _PARTITION.pack(p.index, p.error) + b"\0"
            pending += _H.pack(p.ack_error) + _nullable(p.ack_message)
            pending += _LEADER.pack(*(p.leader or (0, 0))) + b"\0" + uvarint(p.size + 1)
            if p.size:
                out += (bytes(pending), p.records)
                pending = bytearray()
            pending += uvarint(len(p.acquired) + 1)
            for range_ in p.acquired:
                pending += _ACQUIRED.pack(*range_) + b"\0"
            pending += b"\0"
        pending += b"\0"
    pending += uvarint(len(endpoints) + 1)
    for e in endpoints:
        pending += _I.pack(e.broker_id) + compact_string(e.host) + _I.pack(e.port)
        pending += _nullable(e.rack) + b"\0"
    pending += b"\0"
    out.append(bytes(pending))
    return out


def _nullable(text: str | None) -> bytes:
    return b"\0" if text is None else compact_string(text)
