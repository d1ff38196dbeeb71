"""The machine's own slow moments, by a `memory_probe` on each CPU, and their share in steps.

A slow probe counts for the whole machine, because its CPUs have one memory.  A late probe counts
for its CPU alone: no program can hold it up, because it goes before all of them, so the CPU stood
still (the host had taken it away) or was deep in the kernel.  A step's computing in that time, on
that CPU, is not its own.  The whole machine stood still when every CPU's probe was late. Slow
moments less than five milliseconds apart are one, because a probe touches other pages each time,
and some are mapped again sooner.

Where a step lies partly within such a moment, that part of its computing is the machine's; the rest
is the step's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from highwater.bench.figures.sides import Progress

BRIDGED_NS = 5_000_000
READY_S = 20.0
_PROBE = "highwater.bench.figures.memory_probe"
_LINE = re.compile(
    r"\] INFO (\S.*) kept the loop for ([\d.]+) ms \(([\d.]+) with all .*"
    r" until ([\d.]+) s on CPU (-?\d+)"
)


Span = tuple[int, int]
"""Nanoseconds of CLOCK_MONOTONIC: from, until."""


@dataclass(frozen=True, slots=True)
class LongStep:
    """A long step in the broker's log; milliseconds, and seconds of its clock."""

    name: str
    own_ms: float
    all_ms: float
    until_s: float
    cpu: int = -1
    """The CPU on which it ended; -1 where unknown."""


def long_steps(log: Path) -> list[LongStep]:
    """The long steps in a broker's log; none where there is no such file."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in log.read_text(errors="replace").splitlines():
            if match := _LINE.search(line):
                own, whole, until = (float(match[n]) for n in (2, 3, 4))
                found.append(LongStep(match[1], own, whole, until, int(match[5])))
    return found


def _joined(told: Iterable[Span], apart_ns: int) -> list[Span]:
    """Spans in order; those less than `apart_ns` apart, or overlapping, become one."""
    spans: list[Span] = []
    for began, ended in sorted(told):
        if spans and began - spans[-1][1] < apart_ns:
            first, last = spans[-1]
            spans[-1] = first, max(last, ended)
        else:
            spans.append((began, ended))
    return spans


def _within(spans: Sequence[Span], began_ns: int, ended_ns: int) -> int:
    """The nanoseconds between the two times that lie in spans."""
    at = bisect_left(spans, began_ns, key=lambda span: span[1])
    slow = 0
    for first, last in spans[at:]:
        if first >= ended_ns:
            break
        slow += min(last, ended_ns) - max(first, began_ns)
    return slow


class SlowMoments:
    """Slow moments of the whole machine without overlaps: `spans` in nanoseconds, in order.

    `late` has those of single CPUs, by number.
    """

    def __init__(
        self, told: Iterable[Span], late: Mapping[int, Sequence[Span]] | None = None
    ) -> None:
        self.spans = _joined(told, BRIDGED_NS)
        self._of_cpu = {
            cpu: _joined([*self.spans, *spans], 0) for cpu, spans in (late or {}).items()
        }

    @property
    def total_ms(self) -> float:
        return sum(ended - began for began, ended in self.spans) / 1e6

    def within(self, began_ns: int, ended_ns: int, cpu: int = -1) -> int:
        """The nanoseconds of a span in which the machine was slow, or the CPU stood still."""
        return _within(self._of_cpu.get(cpu, self.spans), began_ns, ended_ns)

    def own_ms(self, step: LongStep) -> float:
        """Roughly the step's computing time on a machine that is never slow."""
        ended = int(step.until_s * 1e9)
        whole = step.all_ms * 1e6
        return step.own_ms * (1 - self.within(ended - int(whole), ended, step.cpu) / whole)


class MachineWatch:
    """The probes; none where this user may have no real-time priority."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {
            cpu: folder / f"memory-probe-{cpu}.txt" for cpu in sorted(os.sched_getaffinity(0))
        }
        self._probes: list[subprocess.Popen[bytes]] = []

    @property
    def watches(self) -> bool:
        return bool(self._probes)

    def begin(self) -> str:
        """Waits until every probe knows its usual time; gives the reason if none run, or ""."""
        for cpu, path in self._files.items():
            path.unlink(missing_ok=True)
            command = [sys.executable, "-I", "-m", _PROBE, str(cpu), str(path)]
            self._probes.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        deadline = time.monotonic() + READY_S
        while not all(self._ready(path) for path in self._files.values()):
            ended = [probe for probe in self._probes if probe.poll() is not None]
            if ended or time.monotonic() > deadline:
                errors = ended[0].stderr if ended else None
                why = errors.read().decode().strip() if errors is not None else ""
                self.end()
                return why.rpartition("\n")[2] or f"not ready after {READY_S:g} s"
            time.sleep(0.05)
        return ""

    @staticmethod
    def _ready(path: Path) -> bool:
        return path.exists() and path.read_text().startswith("watching\n")

    def end(self) -> None:
        for probe in self._probes:
            with contextlib.suppress(ProcessLookupError):
                probe.send_signal(signal.SIGTERM)
        for probe in self._probes:
            probe.wait()
            if probe.stderr is not None:
                probe.stderr.close()
        self._probes.clear()

    def moments(self) -> SlowMoments:
        """All slow moments until now."""
        if not self._probes:
            return SlowMoments(())
        return moments_of({cpu: path.read_text() for cpu, path in self._files.items()})


def moments_of(told: Mapping[int, str]) -> SlowMoments:
    """Slow moments from the output of each CPU's probe: those where one was slow, or all were late;
    and for a single CPU those where its own was late.
    """
    slow: list[Span] = []
    late: dict[int, list[Span]] = {}
    for cpu, text in told.items():
        lines = [line.split() for line in text.splitlines() if line.count(" ") == 2]
        slow += [(int(began), int(ended)) for kind, began, ended in lines if kind == "slow"]
        late[cpu] = [(int(began), int(ended)) for kind, began, ended in lines if kind == "late"]
    stood_still = reduce(overlaps, late.values())
    return SlowMoments([*stood_still, *slow], late)


def overlaps(these: Sequence[Span], those: Sequence[Span]) -> list[Span]:
    """The time in both; each list is in order, without overlaps."""
    found = []
    mine, other = iter(these), iter(those)
    a, b = next(mine, None), next(other, None)
    while a is not None and b is not None:
        began, ended = max(a[0], b[0]), min(a[1], b[1])
        if began < ended:
            found.append((began, ended))
        if a[1] < b[1]:
            a = next(mine, None)
        else:
            b = next(other, None)
    return found


@contextlib.contextmanager
def watching(folder: Path, progress: Progress) -> Iterator[MachineWatch]:
    watch = MachineWatch(folder)
    if why := watch.begin():
        progress(
            f"whether the machine is slow is not seen, as that takes real-time priority: {why}"
        )
    try:
        yield watch
    finally:
        watch.end()
