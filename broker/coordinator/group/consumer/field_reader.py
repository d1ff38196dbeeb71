"""Fields of records and of consumers' own bytes, read one after the other."""

from __future__ import annotations

from struct import Struct

from highwater.broker.coordinator.group.consumer.members import Partitions
from highwater.kafka.wire.varint import read_uvarint

_INT16 = Struct(">h")
_INT32 = Struct(">i")


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
