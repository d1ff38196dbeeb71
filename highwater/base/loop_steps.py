"""The longest steps of the loop: the tasks and API handlers that kept all others waiting.

All of a broker runs in one thread, so nothing else happens during a step: a task's run from one
checkpoint to the next.  Planes are only isolated as far as steps are short.  No step should be
longer than 20 ms, except for work that no worker thread can take; this module names those that are.

`LoopSteps` is told of slow handlers by the handler pool, and sees the other steps as an instrument
of trio (installed where a broker is a process; in a simulation no time passes within a step).  It
is also told of Python's garbage collections: they fall into whichever step is running.

On a machine with more work than CPUs a step may take long though it does little: the thread was
ready, and another process ran.  The kernel counts that time, and it is left out: a step is as long
as it would have been with a CPU of its own.  Steps longer than 20 ms only because of that wait are
counted separately.  A hypervisor may take the CPUs away as well (one with a quota does so for a
third of every tenth of a second); the kernel counts that for each CPU, in hundredths of a second,
and it is left out where a step seems to be longer than 20 ms.

Steps that are long only because of system calls are also counted separately.  Examples are a write
to a file, which the kernel holds up while the disk has too much to write or while it looks for
memory, and a new file, while the file system's journal is written.  Either the thread computed for
less than 20 ms, or the step without its slow calls on files took less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from highwater.base.metrics import WINDOW_NS, Family, Sample, labels

log = logging.getLogger(__name__)

NOTED_NS = 2_000_000
"""Shorter steps are not recorded."""
LONG_NS = 20_000_000
ASK_AGAIN_NS = 3_000_000
STOLEN_AGAIN_NS = 50_000_000
"""Asking the kernel for the stolen time can take 60 microseconds, and a client waits for them."""


class Stolen(Protocol):
    """The CPU time that a hypervisor took away (`StolenTime`)."""

    def now(self) -> bytes: ...

    def since(self, before: bytes) -> int: ...

    def cpu(self) -> int: ...


class LoopSteps:
    """Steps longer than 2 ms, by name: the longest of the last minute or two, and the number
    longer than 20 ms since the start.
    """

    def __init__(self) -> None:
        self.over_limit: dict[str, int] = {}
        self.waited: dict[str, int] = {}
        """Number of steps over the limit only because the thread had to wait for a CPU."""
        self.blocked: dict[str, int] = {}
        """Number of steps over the limit only because of slow system calls."""
        self.used_ns: Callable[[], int] = lambda: 1 << 62
        """The most CPU time that it can have used since the running step began."""
        self.waited_ns: Callable[[], int] = lambda: 0
        """Roughly how long it has waited since the running step began."""
        self.calls_ns: Callable[[], int] = lambda: 0
        """How long slow calls on files have lasted since the running step began."""
        self.stolen_ns: Callable[[], int] = lambda: 0
        """How long there was no CPU at all, since shortly before the running step began."""
        self.now_ns: Callable[[], int] = lambda: 0
        self.cpu: Callable[[], int] = lambda: -1
        """The number of the CPU that the thread runs on, or -1."""
        self.taken = 0
        """Number of steps since the start, long or short: zero where nothing watches the loop."""
        self._longest: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._rotated_ns = 0

    def note(self, name: str, ns: int) -> None:
        if ns <= NOTED_NS:
            return
        own = max(ns - self.waited_ns(), 0)
        if own > LONG_NS:
            own = max(own - self.stolen_ns(), 0)
        if own > self._longest.get(name, NOTED_NS):
            self._longest[name] = own
        if ns > LONG_NS:
            counts = self.over_limit
            if own <= LONG_NS:
                counts = self.waited
            elif self.used_ns() <= LONG_NS or ns - self.calls_ns() <= LONG_NS:
                counts = self.blocked
            else:
                log.info(
                    "%s kept the loop for %.1f ms (%.1f with all waiting) until %.6f s on CPU %d",
                    name, own / 1e6, ns / 1e6, self.now_ns() / 1e9, self.cpu(),
                )  # fmt: skip
            counts[name] = counts.get(name, 0) + 1

    def longest(self) -> dict[str, int]:
        """Nanoseconds by name, the longest first."""
        found = dict(self._before)
        for name, ns in self._longest.items():
            found[name] = max(ns, found.get(name, 0))
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def families(self, now_ns: int) -> Iterable[Family]:
        text = "Steps of the loop"
        yield Family("highwater_loop_stepspersec", "counter", text, [Sample("", (), self.taken)])
        samples = [Sample("", labels(step=name), ns / 1e6) for name, ns in self.longest().items()]
        text = "Longest steps of the loop in the last minute or two, of those above 2 ms"
        yield Family("highwater_loop_longeststepms", "gauge", text, samples)
        samples = [Sample("", labels(step=name), n) for name, n in sorted(self.over_limit.items())]
        text = "Steps of the loop that took more than 20 ms"
        yield Family("highwater_loop_longstepspersec", "counter", text, samples)
        samples = [Sample("", labels(step=name), n) for name, n in sorted(self.waited.items())]
        text = "Steps of the loop that took more than 20 ms because something else had the CPU"
        yield Family("highwater_loop_stepswithoutcpupersec", "counter", text, samples)
        samples = [Sample("", labels(step=name), n) for name, n in sorted(self.blocked.items())]
        text = "Steps of the loop that took more than 20 ms because system calls took long"
        yield Family("highwater_loop_stepsblockedpersec", "counter", text, samples)
        if now_ns - self._rotated_ns >= WINDOW_NS:
            self._before, self._longest = self._longest, {}
            self._rotated_ns = now_ns


class StepInstrument(trio.abc.Instrument):
    """Measures every step of every task; two clock reads each.

    `cpu_wait_ns` is the time that this thread has waited for a CPU in its life, `cpu_ns` the time
    that it has used; `stolen` tells when its CPU was taken away.  Asking costs system calls, so the
    last answers are reused for a few milliseconds (the stolen time, in hundredths of a second, for
    fifty): short enough to miss no long wait. `calls_ns` is
    the time that slow calls on files have taken in the thread's life.
    """

    def __init__(
        self,
        steps: LoopSteps,
        perf_ns: Callable[[], int],
        cpu_wait_ns: Callable[[], int] = lambda: 0,
        cpu_ns: Callable[[], int] | None = None,
        stolen: Stolen | None = None,
        calls_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._steps = steps
        self._perf_ns = perf_ns
        self._cpu_wait_ns = cpu_wait_ns
        self._cpu_ns = cpu_ns
        self._cpu_before = 0
        self._began = 0
        self._wait_before = 0
        self._asked = -ASK_AGAIN_NS
        self._stolen = stolen
        self._stolen_before = b""
        self._stolen_asked = -STOLEN_AGAIN_NS
        self._calls_ns = calls_ns
        self._calls_before = 0
        steps.now_ns = perf_ns
        steps.calls_ns = lambda: calls_ns() - self._calls_before
        if stolen is not None:
            steps.stolen_ns = lambda: stolen.since(self._stolen_before)
            steps.cpu = stolen.cpu
        steps.waited_ns = lambda: cpu_wait_ns() - self._wait_before
        if cpu_ns is not None:
            steps.used_ns = lambda: cpu_ns() - self._cpu_before

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = began = self._perf_ns()
        self._calls_before = self._calls_ns()
        if began - self._asked > ASK_AGAIN_NS:
            self._wait_before = self._cpu_wait_ns()
            if self._cpu_ns is not None:
                self._cpu_before = self._cpu_ns()
            self._asked = began
            if self._stolen is not None and began - self._stolen_asked > STOLEN_AGAIN_NS:
                self._stolen_before = self._stolen.now()
                self._stolen_asked = began

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        began, self._began = self._began, 0
        self._steps.taken += 1
        took = self._perf_ns() - began
        if took > NOTED_NS and began:  # installed in mid-step, it has not seen it begin
            self._steps.note(task.name, took)
            self._asked = -ASK_AGAIN_NS  # this step's wait does not count for the next
            if took > LONG_NS:  # nobody asks what was stolen from a shorter one
                self._stolen_asked = -STOLEN_AGAIN_NS
