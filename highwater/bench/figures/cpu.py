"""The CPU time that processes have used."""

from __future__ import annotations

from collections.abc import Sequence

import psutil


def system_seconds(pids: Sequence[int]) -> float:
    """The part of `cpu_seconds` that was spent in the kernel."""
    return sum(psutil.Process(pid).cpu_times().system for pid in pids)


def cpu_seconds(pids: Sequence[int]) -> float:
    """The CPU time that these processes have used in their lives."""
    total = 0.0
    for pid in pids:
        times = psutil.Process(pid).cpu_times()
        total += times.user + times.system
    return total
