"""Starts and stops clusters of the fixtures' kind, two at a time: none may fail or leave anything.

usage: python -m tests.long.starts [COUNT]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from highwater.agent.client import AgentProcess, Control


def once(work: Path, number: int) -> float:
    """Starts a cluster, makes a topic, stops it; gives the seconds until it served."""
    folder = work / str(number)
    with AgentProcess.start({"folder": str(folder)}) as agent:
        Control(agent.control).create_topic("orders", partitions=3)
        seconds = agent.seconds
        assert len(of(folder)) >= 4, "ZooKeeper and three brokers name their folder"
    if left := of(folder):
        raise AssertionError(f"start {number} left {left}")
    return seconds


def of(folder: Path) -> list[str]:
    """The processes that name this folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if f"{folder}/" in words:
            found.append(words)
    return found


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        seconds = list(pool.map(lambda number: once(Path(work), number), range(count)))
    print(
        f"{count} starts, two at a time, and none failed or left a process: "
        f"median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
