"""The leaders that an answer to Produce (from v10 on) or Fetch (from v16 on) names, with their
endpoints: they save clients a metadata request (KIP-951)."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from highwater.kafka.wire.varint import compact_string, uvarint

_I = Struct(">i")
_II = Struct(">ii")
_LEADER_BYTES = 9


class NodeEndpoint(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


def endpoint_tags(endpoints: list[NodeEndpoint]) -> bytes:
    """The answer's tags: the endpoints of the leaders that its partitions name."""
    if not endpoints:
        return b"\0"
    data = bytearray(uvarint(len(endpoints) + 1))
    for e in endpoints:
        data += _I.pack(e.broker_id) + compact_string(e.host) + _I.pack(e.port)
        data += (b"\0" if e.rack is None else compact_string(e.rack)) + b"\0"
    return b"\x01\x00" + uvarint(len(data)) + data


def leader_tag(number: int, leader: tuple[int, int]) -> bytes:
    """A partition's tag CurrentLeader: broker and leader epoch; it has no tags itself."""
    return uvarint(number) + uvarint(_LEADER_BYTES) + _II.pack(*leader) + b"\0"
