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
