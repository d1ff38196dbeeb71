"""Calls of client libraries that may wait (close, flush, commit, list, admin, a poll with a time).

None of them runs on a loop that carries traffic: what the client waits for may have to come over
that loop.  None is waited for without a limit: one that does not return is left behind in its
thread, which keeps the client alive, and the error names what was being done and the call.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
SOON_S: Final = 30.0
"""For a call that has a shorter time of its own, or none that it needs."""


class ClientHangs(Exception):
    """A call of a client library did not return within its limit; one clear line."""


async def apart(phase: str, limit_s: float, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The call's result, from a worker thread; raises ClientHangs."""
    with trio.move_on_after(limit_s):
        return await trio.to_thread.run_sync(call, *arguments, abandon_on_cancel=True)
    raise _hangs(phase, limit_s, call)


def within(phase: str, limit_s: float, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """As `apart`, for a thread without a loop."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(call(*arguments))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name=phase)
    thread.start()
    thread.join(limit_s)
    if failed:
        raise failed[0]
    if not done:
        ours = str(getattr(call, "__module__", "")).startswith("highwater.")
        raise _hangs(phase, limit_s, where(thread) if ours else call)
    return done[0]


def _hangs(phase: str, limit_s: float, call: object) -> ClientHangs:
    name = getattr(call, "__qualname__", str(call))
    return ClientHangs(f"{phase}: {name} has not returned within {limit_s:g} s")


def where(thread: threading.Thread) -> str:
    """The line of ours that a thread stands in, as `consumer.close() (confluent.py:137)`."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("highwater."):
        frame = frame.f_back
    if frame is None:
        return "code that is not Highwater's"
    path = frame.f_code.co_filename
    line = linecache.getline(path, frame.f_lineno).strip()
    return f"{line} ({path.rpartition('/')[2]}:{frame.f_lineno})"
