"""The time that this machine's memory delays a program on a CPU: one process for each CPU.

    python -m highwater.bench.figures.memory_probe CPU FILE

A virtual machine may be slow for a moment without its kernel knowing it.  While the host maps its
memory again, each touched page costs a fault in the host, which the guest takes for computing, and
system calls of two microseconds take two hundred.  So this process touches 64 pages, a thousand
times a second, ahead of everything else on its CPU (SCHED_FIFO: no program of the machine can hold
it up).  It writes down when that took more than twenty times as long as usual ("slow"), or began
more than two milliseconds late ("late": its CPU stood still, or was in the kernel): the nanoseconds
of CLOCK_MONOTONIC at which it should have begun, and at which it was done. It ends with its parent,
or on request.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

SPAN = 64 << 20
APART = 1 << 20
PAGE = 4096
PAUSE_S = 0.001
FIRST = 500
"""The number of first rounds that set the usual time."""
SLOWER = 20
LEAST_NS = 150_000
LATE_NS = 2_000_000
PRIORITY = 50


def watch(cpu: int, path: str) -> None:
    """Watches a CPU; raises PermissionError where this user may have no real-time priority."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    parent = os.getppid()
    view = memoryview(bytearray(b"x") * SPAN)
    with open(path, "w", buffering=1) as told:
        first: list[int] = []
        limit, offset = 1 << 62, 0
        due = time.perf_counter_ns()
        while os.getppid() == parent:
            time.sleep(PAUSE_S)
            began = time.perf_counter_ns()
            bytes(view[offset::APART])
            ended = time.perf_counter_ns()
            if len(first) < FIRST:
                first.append(ended - began)
                if len(first) == FIRST:
                    limit = max(int(SLOWER * statistics.median(first)), LEAST_NS)
                    told.write("watching\n")
            elif ended - began > limit:
                told.write(f"slow {due} {ended}\n")
            elif began - due > LATE_NS:
                told.write(f"late {due} {ended}\n")
            offset = (offset + PAGE) % APART
            due = time.perf_counter_ns() + int(PAUSE_S * 1e9)


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2])
