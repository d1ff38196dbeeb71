"""Room on the disk for a file before it has the bytes: Linux's fallocate, which Python does not
offer with the flag that leaves the file's size alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Any

_KEEP_SIZE = 1
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS)
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def reserve(fd: int, n: int, path: str) -> None:
    """Reserves n bytes or raises OSError (ENOSPC); does nothing where this is not supported."""
    if _libc is None or n <= 0:
        return
    offset, length = ctypes.c_int64(0), ctypes.c_int64(n)
    if _libc.fallocate64(fd, _KEEP_SIZE, offset, length) != 0:
        number = ctypes.get_errno()
        if number not in _CANNOT:
            raise OSError(number, os.strerror(number), path)
