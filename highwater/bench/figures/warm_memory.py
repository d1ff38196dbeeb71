"""Memory that a load can write to at once.

A hypervisor may take back memory that its guest has left free for some seconds (free page
reporting, in Firecracker and others).  The next write to it waits for the host, page by page:
several times as long as the write itself takes (docs/bench.md has the figures, and how to see
them).  With three copies of each record that is most of a broker's work, and depends only on how
recently the memory was used.

So free memory is turned into page cache before a load: a file without content is read until no free
memory is left.  The kernel then gives the load pages from that cache, which the host has already
provided.  Where that does not work (a file system whose holes take no memory, a container with a
limit) nothing is gained, and it stops after a gigabyte and a half.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from highwater.bench.figures.sides import Progress

CHUNK = 1 << 20
AT_ONCE = 256 * CHUNK
PATIENCE = 6
"""The pieces that may be read in vain, because the kernel takes pages back in bursts."""
TELLING_S = 2.0


class WarmMemory:
    """`fill` before each load; `close` (or leave the block) gives all of it back."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._progress = progress
        self._buffer = bytearray(CHUNK)
        self._end = 0
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "warm-memory"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        path.unlink()

    def __enter__(self) -> WarmMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def fill(self) -> float:
        """Fills memory; gives the megabytes taken, 0 where the free memory is unknown."""
        began, in_vain = time.monotonic(), 0
        free = least = free_mb()
        while free > 0 and in_vain < PATIENCE and self._read_on():
            now = free_mb()
            in_vain = 0 if now < least - AT_ONCE / 4e6 else in_vain + 1
            least = min(least, now)
        taken = free - least
        took = time.monotonic() - began
        if took > TELLING_S:
            self._progress(f"free memory is made page cache: {taken:.0f} MB, {took:.0f} s")
        return taken

    def _read_on(self) -> bool:
        """Reads the next bytes of a hole, for which the kernel makes pages of zeros."""
        with suppress(OSError):  # the file system allows no longer file
            os.ftruncate(self._fd, self._end + AT_ONCE)
            while self._end < os.fstat(self._fd).st_size:
                self._end += os.preadv(self._fd, [self._buffer], self._end)
            return True
        return False


def written_back_mb() -> float:
    """The megabytes that the kernel has written to disks since its start; 0 where unknown."""
    with suppress(OSError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters["nr_written"]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def free_mb() -> float:
    """Megabytes of unused memory; 0 where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemFree:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
