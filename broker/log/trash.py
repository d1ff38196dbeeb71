"""Files that are deleted later: readers may still send from them (file.delete.delay.ms, a minute).

They already carry another name (`.deleted`, `-delete`), so that a start in between recognizes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import trio

from highwater.kafka.types import TopicPartition
from highwater.world.api import Clock, Disk, File


@dataclass(order=True, slots=True)
class _Item:
    due_ns: int
    number: int
    files: Sequence[File] = field(compare=False)
    paths: Sequence[str] = field(compare=False)


class Trash:
    """One sleeping task deletes due files; its clock only has to run evenly."""

    def __init__(self, disk: Disk, clock: Clock, failed: Callable[[str, OSError], None]) -> None:
        """`failed` is called with each path that cannot be deleted, and the reason."""
        self._disk = disk
        self._clock = clock
        self._failed = failed
        self._items: list[_Item] = []
        self._count = self._renamed = 0
        self._added = trio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def contents(self) -> tuple[list[File], list[str]]:
        """The files that are to be closed, and the paths that are to be deleted."""
        files = [file for item in self._items for file in item.files]
        return files, [path for item in self._items for path in item.paths]

    def add(self, files: Sequence[File], paths: Sequence[str], delay_ms: int) -> None:
        """Closes these files and deletes these paths (folders too) after the delay."""
        self._count += 1
        due = self._clock.perf_ns() + delay_ms * 1_000_000
        heappush(self._items, _Item(due, self._count, files, paths))
        self._added.set()

    def rename(self, tp: TopicPartition, folder: str) -> str:
        """Gives a partition's folder its last name, which ends in -delete.  Raises OSError."""
        self._renamed += 1
        unique = f"{self._clock.wall_ms():016x}{self._renamed:016x}"
        suffix = f"-{tp.partition}.{unique}-delete"
        gone = f"{folder.rpartition('/')[0]}/{tp.topic[: 255 - len(suffix)]}{suffix}"
        self._disk.rename(folder, gone)
        return gone

    async def run(self) -> None:
        """Runs until cancelled.  What cannot be deleted is left for the next start."""
        while True:
            if not self._items:
                self._added = trio.Event()
                await self._added.wait()
            wait_ns = self._items[0].due_ns - self._clock.perf_ns()
            if wait_ns > 0:
                self._added = trio.Event()
                with trio.move_on_after(wait_ns / 1e9):
                    await self._added.wait()
                continue
            item = heappop(self._items)
            for file in item.files:
                file.close()
            for path in item.paths:
                error = await self._disk.run(lambda path=path: self._delete(path))  # type: ignore[misc]
                if error is not None:
                    self._failed(path, error)

    def _delete(self, path: str) -> OSError | None:
        try:
            if self._disk.is_dir(path):
                self._disk.remove_tree(path)
            elif self._disk.exists(path):
                self._disk.remove(path)
        except FileNotFoundError:
            return None  # its folder has just been given its last name
        except OSError as error:
            return error
        return None
