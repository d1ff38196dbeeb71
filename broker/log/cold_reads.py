"""Reads that do not keep the loop waiting for the disk.

What is asked for is looked up under `Disk.not_waiting`; where something of it is on the disk alone,
that is loaded by a worker thread, and the lookup begins again.  It sees the log as it is then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from highwater.world.api import ColdRead, Disk

T = TypeVar("T")

PLACES = 6
"""So many are loaded before a lookup may wait: an index, two places in the log, and what is gone
again."""


def read_at_once(disk: Disk, read: Callable[[], T]) -> T:
    """What `read` gives; raises ColdRead instead of waiting."""
    with disk.not_waiting():
        return read()


async def read_loaded(disk: Disk, read: Callable[[], T], places: int = PLACES) -> T:
    """What `read` gives, once all that it takes is in memory."""
    for _ in range(places):
        try:
            return read_at_once(disk, read)
        except ColdRead as cold:
            await cold.load()
    return read()
