"""Keeps Python's garbage collector from stopping the broker for long.

Nearly everything is freed when its last reference goes.  Only cycles are left, and to find them a
full collection walks through all objects: modules, codecs, every partition's state.  With some
thousands of partitions that takes 50 ms and more.  The loop stands still meanwhile, and a thread
would not help, as the collection holds the interpreter.

So objects that survive a long full collection are *frozen*: later collections pass them over, and
take time only for what is newer.  A cycle that was frozen alive and dies later is garbage that no
collection sees.  Therefore everything is thawed from time to time, for one collection that is long
again.  It is counted among the loop's steps, by its name.

Many new partitions stay for long, too: they are frozen at once (`grown`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

LONG_NS = 5_000_000
THAW_NS = 3_600_000_000_000
OLDEST = 2


class Collector:
    """`begin` once the broker serves; `collecting` is for gc.callbacks."""

    def __init__(
        self,
        perf_ns: Callable[[], int],
        note: Callable[[str, int], None],
        in_loop: Callable[[], bool] = lambda: True,
    ) -> None:
        """`in_loop` says whether the caller's thread is the loop's."""
        self._in_loop = in_loop
        self._perf_ns = perf_ns
        self._note = note
        self._began = 0
        self._thawed = 0

    def begin(self) -> None:
        """Freezes what the start leaves behind, which stays for good."""
        gc.collect()
        gc.freeze()
        self._thawed = self._perf_ns()
        gc.callbacks.append(self.collecting)

    def grown(self) -> None:
        """Freezes what the broker has just made to keep for long."""
        gc.freeze()

    def end(self) -> None:
        gc.callbacks.remove(self.collecting)
        gc.unfreeze()

    def collecting(self, phase: str, info: Mapping[str, int]) -> None:
        now, oldest = self._perf_ns(), info["generation"] == OLDEST
        if phase == "start":
            self._began = now
            if oldest and now - self._thawed >= THAW_NS:
                self._thawed = now
                gc.unfreeze()
            return
        took = now - self._began
        if self._in_loop():  # during another thread's the loop waits, which counts as blocked
            self._note(f"garbage collection, generation {info['generation']}", took)
        if oldest and took > LONG_NS:
            gc.freeze()
