"""The content of one simulated file: as readers see it, and as a power loss would leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from highwater.world.chance import Random

if TYPE_CHECKING:
    from highwater.world.api import Buffer

PAGE_BYTES = 512
"""Smaller than a real page, so that small files tear, too."""


class Inode:
    """The content of one file."""

    __slots__ = ("_syncing", "_undo", "cuts", "data", "renamed", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0
        self.cuts = 0
        """The number of times that existing bytes were removed or changed (for observers)."""
        self.renamed: tuple[str, float] | None = None
        """Its last name, and when (s) it was given that name (for observers)."""
        self._syncing: list[list[int]] = []
        self._undo: list[tuple[int, bytes]] = []

    def overwrite(self, position: int, data: Buffer) -> None:
        self.cuts += position < len(self.data)
        if position < self.synced:
            end = min(position + len(data), self.synced)
            self._undo.append((position, bytes(self.data[position:end])))
        self.data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        if size < self.synced:
            self._undo.append((size, bytes(self.data[size : self.synced])))
            self.synced = size
        self.cuts += size < len(self.data)
        for mark in self._syncing:
            mark[0] = min(mark[0], size)
        del self.data[size:]

    def begin_sync(self) -> list[int]:
        """Marks the present content for a sync; `end_sync` takes the mark when that is done."""
        mark = [len(self.data), len(self._undo)]
        self._syncing.append(mark)
        return mark

    def end_sync(self, mark: list[int]) -> None:
        self._syncing.remove(mark)
        self.synced = max(self.synced, mark[0])
        del self._undo[: mark[1]]

    @property
    def is_syncing(self) -> bool:
        return bool(self._syncing)

    def durable(self) -> bytearray:
        """The last synced content."""
        found = bytearray(self.data[: self.synced])
        for position, old in reversed(self._undo):
            found[position : position + len(old)] = old
        return found

    @property
    def can_tear(self) -> bool:
        """Whether a power loss may leave a part of what came after the last sync."""
        return not self._undo and self.synced < len(self.data)

    def tear(self, random: Random) -> None:
        """Leaves all up to the last sync, and of the rest a part, or all with zeros in it."""
        start, end = self.synced, len(self.data)
        at = random.randrange(start, end)
        if random.random() < 0.5:
            stop = random.randint(at + 1, end)
            self.data[at:stop] = bytes(stop - at)
        else:
            del self.data[at:]
        self.cuts += 1
        self.synced = len(self.data)
        self._syncing.clear()

    def power_loss(self, random: Random) -> int:
        """Loses power; gives the number of bytes lost at the end."""
        old, new = self.durable(), self.data
        before = len(new)
        if not self._undo and self.synced == len(new):
            return 0
        kept = bytearray(old)
        fate = random.random()
        if len(new) > len(old) and not self._undo and fate < 0.75:
            end = random.randint(len(old), len(new)) if fate < 0.5 else len(new)
            kept += new[len(old) : end]
            if fate < 0.25 and end > len(old):
                page = (random.randrange(len(old), end) // PAGE_BYTES) * PAGE_BYTES
                start, stop = max(page, len(old)), min(page + PAGE_BYTES, end)
                kept[start:stop] = bytes(stop - start)
        elif self._undo and fate < 0.5:
            kept = bytearray(new)
        elif self._undo and fate < 0.75:  # the cut, and a part of what came after it
            cut = min(len(new), *(position for position, _ in self._undo))
            kept = new[: random.randint(cut, len(new))]
        self.data = kept
        self.cuts += 1
        self.synced = len(kept)
        self._undo.clear()
        self._syncing.clear()
        return before - len(kept)
