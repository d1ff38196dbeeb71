"""What a process really costs: its PSS, in which a page shared by n processes counts an nth."""

from __future__ import annotations

from pathlib import Path

import psutil


def pss_mib(pid: int) -> float:
    """PSS of a process and its children; where the system has no PSS, their resident size."""
    process = psutil.Process(pid)
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        rollup = Path(f"/proc/{member.pid}/smaps_rollup")
        if rollup.exists():
            total += pss_of(rollup.read_text())
        else:
            total += member.memory_info().rss / 2**20
    return total


def pss_of(smaps_rollup: str) -> float:
    """The MiB on the `Pss:` line of /proc/PID/smaps_rollup."""
    for line in smaps_rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError("smaps_rollup has no Pss line")
