"""The newest offsets of one partition: the value at each, and the witnesses of it.

Offsets are dense, so an entry is eight bytes of a value's hash, two of its key's, and one of flags.
Entries older than the horizon are cut off in front.  Pure.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Any, Final
from zlib import crc32

ACKED, READ, CAUGHT, PASSED, PASSED_BY_READER, STRICT = 1, 2, 4, 8, 16, 32
"""Flags of an offset: it has a binding acknowledgement; a client read it; the independent reader
read it; a client went past it; the independent reader did; its value may be at no other offset."""
SEEN: Final = READ | CAUGHT
SLACK: Final = 10_000
"""How far below the first offset others may still come: answers come in any order."""
MOST: Final = 1_000_000
"""The most entries of a partition, whatever the horizon."""


def digest(value: str | None) -> int:
    """A value as a number that is not 0."""
    text = (value or "").encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


def key_digest(key: str | None) -> int:
    """A key as a number of two bytes that is not 0."""
    return crc32((key or "").encode("utf-8", "surrogatepass")) & 0xFFFF or 1


class PartitionLog:
    def __init__(self) -> None:
        self.base: int | None = None
        self.hashes = array("Q")
        self.keys = array("H")
        self.flags = bytearray()
        self.place_of: dict[int, int] = {}
        """Hash -> the offset where it was first seen."""
        self.marks: list[tuple[int, int]] = []
        """(time, the end at that time), rising; they say where to cut."""

    @property
    def end(self) -> int:
        return (self.base or 0) + len(self.hashes)

    def holds(self, offset: int) -> bool:
        """Whether the offset has an entry, or may get one."""
        return self.base is None or offset >= self.base

    def index(self, offset: int) -> int:
        """The index of `offset`, which must not be below `base`, in `hashes` and `flags`."""
        if self.base is None or offset - self.end > MOST:
            self._begin(max(0, offset - SLACK))
        assert self.base is not None
        if (missing := offset + 1 - self.end) > 0:
            self.hashes.extend([0] * missing)
            self.keys.extend([0] * missing)
            self.flags.extend(bytes(missing))
        return offset - self.base

    def _begin(self, base: int) -> None:
        self.base = base
        self.hashes, self.keys, self.flags = array("Q"), array("H"), bytearray()
        self.place_of.clear()
        self.marks.clear()

    def flags_at(self, offset: int) -> int:
        if self.base is None or not self.base <= offset < self.end:
            return 0
        return self.flags[offset - self.base]

    def acked(self, hash_: int) -> bool:
        """Whether this value was acknowledged here."""
        return bool(self.flags_at(self.place_of.get(hash_, -1)) & ACKED)

    def mark(self, now_ns: int, horizon_ns: int) -> None:
        """Notes the end at this time, and forgets the entries older than the horizon."""
        if self.base is None:
            return
        if not self.marks or self.marks[-1][0] + horizon_ns // 20 < now_ns:
            self.marks.append((now_ns, self.end))
        cut = max(self.base, self.end - MOST)
        while self.marks and self.marks[0][0] < now_ns - horizon_ns:
            cut = max(cut, self.marks.pop(0)[1] - SLACK)
        self._cut(cut - self.base)

    def _cut(self, count: int) -> None:
        if count <= 0 or self.base is None:
            return
        for offset, hash_ in enumerate(self.hashes[:count], self.base):
            if hash_ and self.place_of.get(hash_) == offset:
                del self.place_of[hash_]
        del self.hashes[:count]
        del self.keys[:count]
        del self.flags[:count]
        self.base += count

    def dump(self) -> tuple[Any, ...]:
        hashes, keys = self.hashes.tobytes(), self.keys.tobytes()
        return (self.base, hashes, keys, bytes(self.flags), self.marks)

    @classmethod
    def load(cls, state: tuple[Any, ...]) -> PartitionLog:
        log = cls()
        log.base, hashes, keys, flags, log.marks = state
        log.hashes.frombytes(hashes)
        log.keys.frombytes(keys)
        log.flags.extend(flags)
        # from the last to the first, so that the first place of a hash is the one that stays
        offsets = range(log.end - 1, (log.base or 0) - 1, -1)
        log.place_of = dict(zip(reversed(log.hashes.tolist()), offsets, strict=True))
        log.place_of.pop(0, None)
        return log
