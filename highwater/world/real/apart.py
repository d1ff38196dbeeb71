"""`Disk.apart`: steps of long work in a process of their own.

Python runs one thread at a time, and switches every five milliseconds: a thread that computes for
seconds would make each system call of the event loop that much longer.  So a child process does the
work; it imports the module of the work and the real disk, and nothing else of the program.

Parent and child (`apart_child`) talk through the child's standard input and output.  The parent
writes the job, then one byte for each step it wants; the child answers each with a pickled result.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any, Generic, TypeVar

import trio

from highwater.world.api import ApartError, Disk, Pace, Steps

R = TypeVar("R")
SIZE = Struct(">I")
_STEP = b"n"
_CODE = "from highwater.world.real.apart_child import main; main()"
_ENDED = "the process that does the work ended (was it killed?)"
LONGEST_NAP_S = 1.0


class Throttle:
    """Sleeps long enough that, on average, no more than the allowed bytes pass in a second."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._due = time.monotonic()

    def __call__(self, n: int) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - LONGEST_NAP_S) + n / self._rate
        if self._due > now:
            time.sleep(self._due - now)


class ThreadSteps(Generic[R]):
    """Steps in worker threads, for work of a few milliseconds."""

    def __init__(self, steps: Iterator[R], run: Callable[[Callable[[], Any]], Any]) -> None:
        self._steps = steps
        self._run = run

    async def next(self) -> R | None:
        found: R | None = await self._run(lambda: next(self._steps, None))
        return found


class ProcessSteps(Generic[R]):
    """The parent's side of a child's steps."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._buffer = bytearray()

    async def send(self, *content: object) -> None:
        data = pickle.dumps(content)
        await self._write(SIZE.pack(len(data)) + data)

    async def _write(self, data: bytes) -> None:
        try:
            await self._stdin.send_all(data)
        except trio.BrokenResourceError as error:
            raise ApartError(_ENDED) from error

    async def _receive(self, n: int) -> bytes:
        while len(self._buffer) < n:
            data = await self._stdout.receive_some()
            if not data:
                raise ApartError(_ENDED)
            self._buffer += data
        found = bytes(self._buffer[:n])
        del self._buffer[:n]
        return found

    async def next(self) -> R | None:
        await self._write(_STEP)
        (size,) = SIZE.unpack(await self._receive(SIZE.size))
        result: R | None
        result, raised = pickle.loads(await self._receive(size))
        if raised is not None:
            raise raised
        return result


@asynccontextmanager
async def process_steps(
    work: Callable[[Disk, Any, Pace], Iterator[R]], job: object, bytes_per_second: float
) -> AsyncIterator[Steps[R]]:
    """Starts the child; kills it at the end."""
    command = [sys.executable, "-I", "-c", _CODE]
    try:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise ApartError(f"no process can be started for the work: {error}") from error
    try:
        steps: ProcessSteps[R] = ProcessSteps(process)
        await steps.send(work, job, bytes_per_second)
        yield steps
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


def thread_steps(
    work: Callable[[Disk, Any, Pace], Iterator[R]], disk: Disk, job: object, rate: float
) -> ThreadSteps[R]:
    """The same steps in threads of this process."""
    return ThreadSteps(work(disk, job, Throttle(rate)), disk.run)
