"""The beginning of a Produce request, up to its first batch, without its records.

Who looks on (a proxy, the doctor) has the first bytes of a request alone, of clients' versions that
may be later than the codecs here.  Source: ProduceRequest.json; v13 names topics by id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from highwater.kafka.wire.varint import read_compact_string, read_uvarint

_FLEXIBLE, _TOPIC_IDS = 9, 13
_ACKS = struct.Struct(">hi")
_MAGIC = 16
"""The position of the format's number in a batch."""


@dataclass(frozen=True, slots=True)
class ProduceHead:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str | None = None
    """The first topic; None if there is none, or if it is named by its id."""
    partition: int = -1
    """The first partition of that topic."""
    batch: int | None = None
    """The position of the first batch of the new format (v2)."""


def read_head(version: int, body: memoryview) -> ProduceHead | None:
    """The head of a request's body; None if not even acks can be read."""
    try:
        name, at = _name(body, 0, version) if version >= 3 else (None, 0)
        acks, timeout_ms = _ACKS.unpack_from(body, at)
    except (struct.error, IndexError, ValueError):
        return None
    try:
        topic, partition, batch = _first(body, at + _ACKS.size, version)
    except (struct.error, IndexError, ValueError):  # cut short, or of a version to come
        return ProduceHead(name, acks, timeout_ms)
    return ProduceHead(name, acks, timeout_ms, topic, partition, batch)


def _name(body: memoryview, at: int, version: int) -> tuple[str | None, int]:
    if version >= _FLEXIBLE:
        return (None, at + 1) if body[at] == 0 else read_compact_string(body, at)
    (length,) = struct.unpack_from(">h", body, at)
    at += 2
    return (None, at) if length < 0 else (str(body[at : at + length], "utf-8"), at + length)


def _first(body: memoryview, at: int, version: int) -> tuple[str | None, int, int | None]:
    at = read_uvarint(body, at)[1] if version >= _FLEXIBLE else at + 4
    topic, at = (None, at + 16) if version >= _TOPIC_IDS else _name(body, at, version)
    at = read_uvarint(body, at)[1] if version >= _FLEXIBLE else at + 4
    (partition,) = struct.unpack_from(">i", body, at)
    at = read_uvarint(body, at + 4)[1] if version >= _FLEXIBLE else at + 8
    return topic, partition, at if at + _MAGIC < len(body) and body[at + _MAGIC] == 2 else None
