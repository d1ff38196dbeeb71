"""A process's real cost: its PSS, in which a page shared by n processes counts an nth."""

from __future__ import annotations

from pathlib import Path

import psutil


def pss_mib(pid: int) -> float:
    """PSS of a process and its children; or their resident size where the system has no PSS."""
    process = psutil.Process(pid)
    total = _of_one(process)
    for child in process.children(recursive=True):
        try:
            total += _of_one(child)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue  # for instance a cleaner that has just ended
    return total


def _of_one(process: psutil.Process) -> float:
    try:
        return pss_of(Path(f"/proc/{process.pid}/smaps_rollup").read_text())
    except FileNotFoundError:
        return float(process.memory_info().rss / 2**20)


def pss_of(smaps_rollup: str) -> float:
    """The MiB on the `Pss:` line of /proc/PID/smaps_rollup."""
    for line in smaps_rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError("smaps_rollup has no Pss line")
