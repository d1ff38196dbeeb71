"""Unsigned varints, and the parts of flexible versions (KIP-482) that use them: compact strings,
arrays, tagged fields.
"""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview

MAX_ELEMENTS = 250_000
"""The most elements that all arrays of one client's request may have together.  Each becomes an
object of a few hundred bytes, and takes about a microsecond of the broker's loop."""
MAX_TAGS = 1000
"""The most tags in one section of tagged fields; Kafka's own messages have a handful."""


def within(left: int, count: int) -> int:
    """The elements that a request has left after an array of `count`; raises ValueError."""
    if count > left:
        raise ValueError(f"more than {MAX_ELEMENTS} elements in its arrays")
    return left - max(count, 0)


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
    if count > MAX_TAGS:
        raise ValueError(f"{count} tagged fields in one place, more than {MAX_TAGS}")
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    return at


def read_id(view: Buffer, at: int) -> tuple[bytes, int]:
    """A topic id, 16 bytes; raises ValueError where they are not there."""
    found = bytes(view[at : at + 16])
    if len(found) != 16:
        raise ValueError("an id that reaches past the end")
    return found, at + 16


def read_compact_string(view: Buffer, at: int) -> tuple[str, int]:
    length, at = read_uvarint(view, at)
    end = at + length - 1
    return str(view[at:end], "utf-8", "replace"), end


def compact_string(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data
