"""A load in a process of its own, until it ends: a client in it may not let it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from typing import Final

import trio

from highwater.bench.figures.sides import BenchFailed

LOAD_S: Final = 1800.0


async def ended(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """With its output and errors; raises BenchFailed where it does not end."""
    with trio.move_on_after(LOAD_S):
        return await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
    told = shlex.join(command)[:200]
    raise BenchFailed(f"a load has not ended within {LOAD_S:g} s: {told}")


async def output(command: Sequence[str]) -> str:
    """A load's output; raises BenchFailed with its last line of errors."""
    done = await ended(command)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise BenchFailed(lines[-1] if lines else f"exit code {done.returncode}: {command[-1]}")
    return done.stdout.decode()
