"""How many bytes of a file are in memory, from a position on: what can be sent without waiting.

Linux tells in two ways.  mincore(2) answers for a mapping of the file, which is made for the
question and never touched: three short calls for megabytes, and no byte is copied.  preadv(2) with
RWF_NOWAIT copies what it finds, so it costs as much as to send the bytes; for a few kilobytes that
is less than to make a mapping.  It also makes the kernel fetch a missing page; mincore does not.

mincore answers truly for the owner of a file and for those who may write it, and says to all others
that everything is in memory.  Brokers own their files.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import Any

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
ASKS = bool(_NOWAIT) and sys.platform == "linux"
"""Whether the system tells at all."""
_MAPS = ASKS and sys.maxsize > 1 << 32  # else mmap's offsets have 32 bits
_COPIED_BYTES = 16 << 10
"""Up to here the copy costs less than the mapping."""
_PRESENT = bytes(n & 1 for n in range(256))
"""mincore's other bits mean nothing."""


def _functions() -> tuple[Any, Any, Any]:
    libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: none of them waits
    size, place, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    libc.mmap.restype = place
    libc.mmap.argtypes = (place, size, number, number, number, ctypes.c_int64)
    libc.mincore.argtypes = (place, size, ctypes.c_char_p)
    libc.munmap.argtypes = (place, size)
    return libc.mmap, libc.mincore, libc.munmap


if _MAPS:
    _mmap, _mincore, _munmap = _functions()
_FAILED = ctypes.c_void_p(-1).value


def in_memory(fd: int, position: int, n: int, scratch: memoryview) -> int:
    """How many of the n bytes, all within the file, are in memory, from the first one on.

    Without a mapping it looks at no more than fits into `scratch`.  OSError where the file system
    cannot tell.
    """
    if _MAPS and n > _COPIED_BYTES:
        return by_map(fd, position, n)
    try:
        return os.preadv(fd, [scratch[:n]], position, _NOWAIT)
    except BlockingIOError:
        return 0


def by_map(fd: int, position: int, n: int) -> int:
    """`in_memory`, by mincore."""
    start = position - position % mmap.PAGESIZE
    length = position + n - start
    pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
    where = _mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
    if where == _FAILED:
        raise _error()
    failed = _mincore(where, length, pages)
    error = _error() if failed else None
    _munmap(where, length)
    if error is not None:
        raise error
    missing = pages.raw.translate(_PRESENT).find(b"\0")
    if missing < 0:
        return n
    return max(0, start + missing * mmap.PAGESIZE - position)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
