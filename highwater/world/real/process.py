"""The system's counts of this process, from the kernel's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path


def process_numbers() -> Mapping[str, Callable[[], float]]:
    """Functions by name: Prometheus's own names for processes, and Kafka's for the disk."""
    numbers: dict[str, Callable[[], float]] = {
        "process_cpu_seconds_total": lambda: sum(os.times()[:2]),
    }
    if os.path.exists("/proc/self/statm"):
        numbers["process_resident_memory_bytes"] = _resident
    if os.path.exists("/proc/self/io"):
        numbers["kafka_server_kafkaserver_linux_disk_read_bytes"] = lambda: _io("read_bytes")
        numbers["kafka_server_kafkaserver_linux_disk_write_bytes"] = lambda: _io("write_bytes")
    return numbers


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _io(name: str) -> float:
    for line in Path("/proc/self/io").read_text().splitlines():
        key, _, value = line.partition(": ")
        if key == name:
            return float(value)
    return 0.0
