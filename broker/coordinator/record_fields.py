"""Fields of records in the coordinators' topics, written and read in flexible versions (KIP-482);
and of consumers' own bytes.

Tagged fields that are not known are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from highwater.kafka.wire.varint import read_uvarint, uvarint

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions; never an empty set."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def key_text(text: str) -> bytes:
    """A string in a key, which has no flexible version."""
    data = text.encode()
    return _INT16.pack(len(data)) + data


def text(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    data = value.encode()
    return uvarint(len(data) + 1) + data


def texts(values: Sequence[str]) -> bytes:
    return uvarint(len(values) + 1) + b"".join(map(text, values))


def partitions(value: Partitions) -> bytes:
    parts = [uvarint(len(value) + 1)]
    for topic_id, numbers in value.items():
        parts.append(topic_id + uvarint(len(numbers) + 1))
        parts += (_INT32.pack(number) for number in sorted(numbers))
        parts.append(b"\0")
    return b"".join(parts)


def tags(*fields: tuple[int, bytes]) -> bytes:
    """A section of tagged fields, in the order of their numbers."""
    parts = [uvarint(len(fields))]
    for number, data in fields:
        parts += (uvarint(number), uvarint(len(data)), data)
    return b"".join(parts)


class Fields:
    """Reads one field after the other; raises ValueError, IndexError or struct.error."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def number(self, kind: Struct) -> int:
        (value,) = kind.unpack_from(self.data, self.at)
        self.at += kind.size
        return int(value)

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"a field of {size} bytes at {self.at}")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def size(self) -> int:
        """The length of what follows; -1 for a null."""
        length, self.at = read_uvarint(self.data, self.at)
        return length - 1

    def nullable(self) -> str | None:
        size = self.size()
        return None if size < 0 else self.take(size).decode()

    def text(self) -> str:
        return self.nullable() or ""

    def plain_text(self) -> str:
        """A string with a length of two bytes: of a key, and outside of flexible versions."""
        return self.take(self.number(_INT16)).decode()

    def texts(self) -> tuple[str, ...]:
        return tuple(self.text() for _ in range(self.size()))

    def partitions(self) -> Partitions:
        found: dict[bytes, frozenset[int]] = {}
        for _ in range(self.size()):
            topic_id = self.take(16)
            numbers = frozenset(self.number(_INT32) for _ in range(self.size()))
            self.tags()
            if numbers:
                found[topic_id] = numbers
        return found

    def tags(self) -> dict[int, bytes]:
        count, self.at = read_uvarint(self.data, self.at)
        found = {}
        for _ in range(count):
            tag, self.at = read_uvarint(self.data, self.at)
            size, self.at = read_uvarint(self.data, self.at)
            found[tag] = self.take(size)
        return found
