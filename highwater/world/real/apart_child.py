"""The child's side of `Disk.apart`.

A thread reads the input: when that ends the parent is gone (kill -9 included), and the child ends
at once, in the middle of its work.
"""

from __future__ import annotations

import os
import pickle
import threading
from functools import partial

from highwater.world.real.apart import SIZE, Throttle
from highwater.world.real.disk import RealDisk


def main() -> None:
    """The child's program."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # accidental prints must not mix with the answers
    (size,) = SIZE.unpack(_read_exactly(SIZE.size))
    work, job, rate = pickle.loads(_read_exactly(size))
    wanted = threading.Semaphore(0)
    threading.Thread(target=partial(_listen, wanted), daemon=True).start()
    steps = work(RealDisk(), job, Throttle(rate))
    while True:
        wanted.acquire()
        result, raised = None, None
        try:
            result = next(steps, None)
        except Exception as error:
            raised = error
        data = pickle.dumps((result, raised))
        out.write(SIZE.pack(len(data)) + data)
        out.flush()


def _read_exactly(n: int) -> bytes:
    """Reads n bytes of standard input and no more: the next bytes are the other thread's."""
    data = b""
    while len(data) < n:
        more = os.read(0, n - len(data))
        if not more:
            os._exit(1)
        data += more
    return data


def _listen(wanted: threading.Semaphore) -> None:
    while os.read(0, 1):
        wanted.release()
    os._exit(1)
