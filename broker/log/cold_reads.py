"""Reads that do not keep the loop waiting for the disk.

A lookup runs under `Disk.not_waiting`.  If some of its data is only on the disk, a worker thread
loads that part, and the lookup starts again.  It then sees the log as it has become.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from highwater.world.api import ColdRead, Disk

T = TypeVar("T")

PLACES = 6
"""The number of loads before a lookup may wait: for an index, two places in the log, and pages that
were dropped again."""


def read_at_once(disk: Disk, read: Callable[[], T]) -> T:
    """The result of `read`; raises ColdRead instead of waiting."""
    with disk.not_waiting():
        return read()


async def read_loaded(
    disk: Disk, read: Callable[[], T], failed: Callable[[OSError], None], places: int = PLACES
) -> T:
    """The result of `read`, once all that it needs is in memory.  On a disk error `failed` takes
    the directory offline, and the next `read` finds it so."""
    for _ in range(places):
        try:
            return read_at_once(disk, read)
        except ColdRead as cold:
            try:
                await cold.load()
            except OSError as error:
                failed(error)
    return read()
