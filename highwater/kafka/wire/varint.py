"""Unsigned varints, and the parts of flexible versions (KIP-482) that use them: compact strings,
arrays, tagged fields.
"""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview


def read_uvarint(view: Buffer, at: int) -> tuple[int, int]:
    """The value, and the position of the next field."""
    byte = view[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 28:
            raise ValueError("a varint of more than five bytes")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(view: Buffer, at: int) -> int:
    """The position after a section of tagged fields; the tags' content is skipped."""
    count, at = read_uvarint(view, at)
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    return at


def read_compact_string(view: Buffer, at: int) -> tuple[str, int]:
    length, at = read_uvarint(view, at)
    end = at + length - 1
    return str(view[at:end], "utf-8"), end


def compact_string(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data
