"""Buffers for large frames, used again and again.

A new bytearray is zeroed, and the kernel maps its pages in one fault at a time: for 128 KiB that
costs as much as receiving the bytes.  A recently used buffer is in the CPU's cache.

No caller gives a buffer back.  A memoryview keeps a reference to its buffer, so a buffer that only
the pool refers to is free, and one that is still in use is never handed out a second time.  (Where
an interpreter does not count references, every buffer is a new one.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable

_STEP = 1 << 16
_count: Callable[[object], int] | None = getattr(sys, "getrefcount", None)


def _references(kept: list[bytearray], index: int) -> int:
    return _count(kept[index]) if _count is not None else -1


_FREE = _references([bytearray()], 0) if _count is not None else 0


class BufferPool:
    """Keeps at most `keep` buffers of at most `largest` bytes; others are new each time."""

    def __init__(self, keep: int = 8, largest: int = 2 << 20) -> None:
        self._keep = keep
        self._largest = largest
        self._kept: list[bytearray] = []
        self._next = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with its old contents."""
        if size > self._largest:
            return bytearray(size)
        kept = self._kept
        for index in range(len(kept)):
            if len(kept[index]) >= size and _references(kept, index) == _FREE:
                return kept[index]
        buffer = bytearray(-(-size // _STEP) * _STEP)
        if len(kept) < self._keep:
            kept.append(buffer)
        else:
            kept[self._next] = buffer
            self._next = (self._next + 1) % self._keep
        return buffer
