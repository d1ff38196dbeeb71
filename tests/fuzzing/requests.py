"""Requests of every API and version, by Kafka's schemas: with unlikely values, and damaged.

All chance comes from a `random.Random`: a seed gives the same request again, and Hypothesis, which
brings one of its own, finds the smallest that fails.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

from highwater.kafka.wire.codec import request_class
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.header import is_flexible, request_header
from highwater.kafka.wire.records import CRC_START, HEADER_SIZE, Record, build_batch, crc32c
from highwater.kafka.wire.varint import uvarint

TOPICS = (
    "fuzzed", "fuzzed-2", "served", "__consumer_offsets", "", ".", "..", "a/b", "a b", "x" * 250,
    "ü",
)  # fmt: skip
GROUPS = ("group", "group-2", "", "x" * 1000, "\0")
TEXTS = (
    "",
    "1",
    "-1",
    "fuzz",
    "<default>",
    "range",
    "retention.ms",
    "User:fuzz",
    "*",
    "\0",
    "ü" * 99,
)
_WHOLE = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
_NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -2, 100)


def request(chance: Random, key: int, version: int, correlation: int = 1) -> bytes:
    """The frame of one request, its size before it."""
    body = body_of(chance, key, version)
    client = chance.choice(("fuzz", "fuzz", "", None, "x" * 300))
    head = request_header(key, version, correlation, client)
    if chance.random() < 0.3:
        body = damaged(chance, body)
    if chance.random() < 0.05:
        head = damaged(chance, head)
    frame = head + body
    size = (
        len(frame) if chance.random() < 0.97 else chance.choice((0, 1, -1, len(frame) + 9, 1 << 30))
    )
    return struct.pack(">i", size) + frame


def body_of(chance: Random, key: int, version: int) -> bytes:
    fields = request_class(key)._struct.fields
    return _struct(chance, fields.values(), version, is_flexible(key, version), 0)


def _struct(chance: Random, fields: Any, version: int, flexible: bool, depth: int) -> bytes:
    out = b""
    for field in fields:
        if field.for_version_q(version) and not field.tagged_field_q(version):
            out += _field(chance, field, version, flexible, depth)
    return out + (_tags(chance) if flexible else b"")


def _tags(chance: Random) -> bytes:
    if chance.random() < 0.97:
        return b"\0"
    tags = [(chance.choice((0, 1, 2, 99)), chance.randbytes(chance.randrange(9))) for _ in range(2)]
    return uvarint(len(tags)) + b"".join(uvarint(t) + uvarint(len(d)) + d for t, d in tags)


def _field(chance: Random, field: Any, version: int, flexible: bool, depth: int) -> bytes:
    null = field.nullable_for_version_q(version) and chance.random() < 0.2
    null = null or chance.random() < 0.01
    if field.is_array():
        if null:
            return b"\0" if flexible else struct.pack(">i", -1)
        count = chance.choice((0, 1, 1, 2, 3)) if depth < 3 else chance.choice((0, 1))
        if chance.random() < 0.01:
            count = 500
        inner, parts = field.array_of, []
        for _ in range(count):
            if getattr(field, "fields", None):
                parts.append(_struct(chance, field.fields.values(), version, flexible, depth + 1))
            else:
                parts.append(_simple(chance, inner, field, flexible, False))
        claimed = count if chance.random() < 0.99 else chance.choice((1 << 30, count + 1, -5))
        head = uvarint(max(claimed, 0) + 1) if flexible else struct.pack(">i", claimed)
        return head + b"".join(parts)
    if getattr(field, "fields", None):
        inner = _struct(chance, field.fields.values(), version, flexible, depth + 1)
        if not field.nullable_for_version_q(version):
            return inner
        return b"\xff" if null else b"\1" + inner
    return _simple(chance, field, field, flexible, null)


def _simple(chance: Random, inner: Any, field: Any, flexible: bool, null: bool) -> bytes:
    kind = str(inner.type_str if hasattr(inner, "type_str") else inner).removeprefix("[]")
    if kind in _WHOLE:
        bits = _WHOLE[kind]
        return (_number(chance, field, bits) & ((1 << bits) - 1)).to_bytes(bits // 8, "big")
    if kind == "bool":
        return bytes((chance.randrange(2),))
    if kind == "float64":
        return struct.pack(">d", chance.choice((0.0, 1.0, -1.0, 1e300, float("nan"), float("inf"))))
    if kind == "uuid":
        return chance.choice((b"\0" * 16, chance.randbytes(16)))
    if kind == "string":
        return _sized(None if null else _text(chance, field).encode(), flexible, ">h")
    data = batches(chance) if kind == "records" else chance.randbytes(chance.choice((0, 0, 3, 40)))
    return _sized(None if null else data, flexible, ">i")


def _sized(data: bytes | None, flexible: bool, form: str) -> bytes:
    if data is None:
        return b"\0" if flexible else struct.pack(form, -1)
    return (uvarint(len(data) + 1) if flexible else struct.pack(form, len(data))) + data


def _number(chance: Random, field: Any, bits: int) -> int:
    name = str(field.name)
    if ("ms" in name.split("_") or "timeout" in name or "wait" in name) and chance.random() < 0.95:
        return chance.choice((0, 1, 20))
    if "partition" in name and "count" not in name and chance.random() < 0.8:
        return 0
    if chance.random() < 0.85:
        return chance.choice(_NUMBERS)
    top = (1 << (bits - 1)) - 1
    return chance.choice((top, -top - 1, top - 1, chance.randrange(top)))


def _text(chance: Random, field: Any) -> str:
    entity = field._json.get("entityType")
    names: Sequence[str] = TEXTS
    if entity == "topicName" or "topic" in str(field.name):
        names = TOPICS
    elif entity in ("groupId", "transactionalId"):
        names = GROUPS
    return chance.choice(names[:3] if chance.random() < 0.6 else names)


def batches(chance: Random) -> bytes:
    """Records as a client sends them: one batch, seldom none or two, often damaged."""
    out = b""
    for _ in range(chance.choice((1, 1, 1, 1, 0, 2))):
        texts = (None, b"", b"k", chance.randbytes(30), b"\0" * 2000)
        records = [
            Record(chance.choice(texts), chance.choice(texts), chance.choice((-1, 0, 1 << 41)))
            for _ in range(chance.choice((1, 1, 2, 30)))
        ]
        ids = chance.choice(((-1, -1, -1), (-1, -1, -1), (1, 0, 0), (7, 3, 99)))
        out += build_batch(
            records, producer_id=ids[0], producer_epoch=ids[1], base_sequence=ids[2],
            compression=chance.choice(list(Compression)),
            attributes=chance.choice((0, 0, 0, 8, 16, 32, 48, 64)),
        )  # fmt: skip
    return damaged_batch(chance, out) if chance.random() < 0.5 else out


def damaged_batch(chance: Random, data: bytes) -> bytes:
    """With a right CRC or a wrong one: what is behind the CRC must be reached, too."""
    changed = bytearray(damaged(chance, data))
    if len(changed) >= HEADER_SIZE and chance.random() < 0.8:
        struct.pack_into(">i", changed, 8, len(changed) - 12)
        changed[16] = 2
        struct.pack_into(">I", changed, CRC_START - 4, crc32c(memoryview(changed)[CRC_START:]))
    return bytes(changed)


def damaged(chance: Random, data: bytes) -> bytes:
    """The same with some bytes changed, cut, doubled or put in between."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(out) + 1)
        what = chance.randrange(6)
        if what == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del out[at:]
        elif what == 2:
            out[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif what == 3:
            out[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80\0\0\0"))
        elif what == 4:
            out[at:at] = out[at : at + 50]
        else:
            del out[at : at + chance.randrange(1, 9)]
    return bytes(out)
