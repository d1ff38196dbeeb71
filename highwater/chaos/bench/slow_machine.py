"""When the machine itself was slow, by a `memory_probe` on each CPU, and what steps owe to that.

A probe that is slow says so of all the machine: its CPUs have one memory.  One that is late says so
of its CPU alone, which may have been in a long system call, so that only the time counts in which
every CPU's was.  Slow moments less than five milliseconds apart are one, as a probe touches other
pages each time, and some are mapped again sooner.

Of a step that lay within such a moment in part, that part of its computing is the machine's; what
is left is the step's own.
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from highwater.chaos.bench.sides import Progress

BRIDGED_NS = 5_000_000
READY_S = 20.0
_PROBE = "highwater.chaos.bench.memory_probe"
_LINE = re.compile(
    r"\] INFO (\S.*) kept the loop for ([\d.]+) ms \(([\d.]+) with all .* until ([\d.]+) s "
)


Span = tuple[int, int]
"""Nanoseconds, of CLOCK_MONOTONIC: from, until."""


@dataclass(frozen=True, slots=True)
class LongStep:
    """As the broker's log tells of it; milliseconds, and seconds of its clock."""

    name: str
    own_ms: float
    all_ms: float
    until_s: float


def long_steps(log: Path) -> list[LongStep]:
    """Those of a broker's log; none where there is no such file."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in log.read_text(errors="replace").splitlines():
            if match := _LINE.search(line):
                own, whole, until = (float(match[n]) for n in (2, 3, 4))
                found.append(LongStep(match[1], own, whole, until))
    return found


class SlowMoments:
    """Those of the whole machine, without overlaps: `spans` in nanoseconds, in order."""

    def __init__(self, told: Iterable[Span]) -> None:
        self.spans: list[Span] = []
        for began, ended in sorted(told):
            if self.spans and began - self.spans[-1][1] < BRIDGED_NS:
                first, last = self.spans[-1]
                self.spans[-1] = first, max(last, ended)
            else:
                self.spans.append((began, ended))

    @property
    def total_ms(self) -> float:
        return sum(ended - began for began, ended in self.spans) / 1e6

    def within(self, began_ns: int, ended_ns: int) -> int:
        """Nanoseconds of that span in which the machine was slow."""
        at = bisect_left(self.spans, began_ns, key=lambda span: span[1])
        slow = 0
        for first, last in self.spans[at:]:
            if first >= ended_ns:
                break
            slow += min(last, ended_ns) - max(first, began_ns)
        return slow

    def own_ms(self, step: LongStep) -> float:
        """What it would have computed for on a machine that is never slow, about."""
        ended = int(step.until_s * 1e9)
        whole = step.all_ms * 1e6
        return step.own_ms * (1 - self.within(ended - int(whole), ended) / whole)


class MachineWatch:
    """The probes; there are none where this user may have no real-time priority."""

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
        """Waits until every probe knows what is usual; gives why they do not run, or nothing."""
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
        """All until now."""
        if not self._probes:
            return SlowMoments(())
        return moments_of([path.read_text() for path in self._files.values()])


def moments_of(told: Sequence[str]) -> SlowMoments:
    """Of what each probe has written: wherever one was slow, or all were late."""
    spans: dict[str, list[list[Span]]] = {"slow": [], "late": []}
    for text in told:
        lines = [line.split() for line in text.splitlines() if line.count(" ") == 2]
        for kind, of_all in spans.items():
            of_all.append([(int(line[1]), int(line[2])) for line in lines if line[0] == kind])
    stood_still = spans["late"][0]
    for others in spans["late"][1:]:
        stood_still = overlaps(stood_still, others)
    return SlowMoments([*stood_still, *(span for each in spans["slow"] for span in each)])


def overlaps(these: Sequence[Span], those: Sequence[Span]) -> list[Span]:
    """The time that is in both; each has none that overlap, in order."""
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
