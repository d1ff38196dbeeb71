"""The longest steps of the loop: which task, or which API's handler, kept everybody waiting.

All of a broker runs in one thread, so nothing else happens during a step: a task's run from one
checkpoint to the next.  Planes are only isolated as far as steps are short.  None should be longer
than 20 ms, but for what no worker thread can take; this says which was.

`LoopSteps` is told (by the handler pool, of slow handlers) or sees for itself, as an instrument of
trio (installed where a broker is a process; a simulation has no time that passes within a step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from highwater.common.metrics import WINDOW_NS, Family, Sample, labels

NOTED_NS = 2_000_000
"""Shorter ones are of no interest, and not told apart."""
LONG_NS = 20_000_000


class LoopSteps:
    """Steps longer than 2 ms, by name: the longest of the last minute or two, and how many were
    longer than 20 ms since the start.
    """

    def __init__(self) -> None:
        self.over_limit: dict[str, int] = {}
        self._longest: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._rotated_ns = 0

    def note(self, name: str, ns: int) -> None:
        if ns > self._longest.get(name, 0):
            self._longest[name] = ns
        if ns > LONG_NS:
            self.over_limit[name] = self.over_limit.get(name, 0) + 1

    def longest(self) -> dict[str, int]:
        """Nanoseconds by name, the longest first."""
        found = dict(self._before)
        for name, ns in self._longest.items():
            found[name] = max(ns, found.get(name, 0))
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def families(self, now_ns: int) -> Iterable[Family]:
        samples = [Sample("", labels(step=name), ns / 1e6) for name, ns in self.longest().items()]
        text = "Longest steps of the loop in the last minute or two, of those above 2 ms"
        yield Family("highwater_loop_longeststepms", "gauge", text, samples)
        samples = [Sample("", labels(step=name), n) for name, n in sorted(self.over_limit.items())]
        text = "Steps of the loop that took more than 20 ms"
        yield Family("highwater_loop_longstepspersec", "counter", text, samples)
        if now_ns - self._rotated_ns >= WINDOW_NS:
            self._before, self._longest = self._longest, {}
            self._rotated_ns = now_ns


class StepInstrument(trio.abc.Instrument):
    """Measures every step of every task; two clock reads each."""

    def __init__(self, steps: LoopSteps, perf_ns: Callable[[], int]) -> None:
        self._steps = steps
        self._perf_ns = perf_ns
        self._began = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._perf_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        began, self._began = self._began, 0
        took = self._perf_ns() - began
        if took > NOTED_NS and began:  # installed in the midst of a step, it has not seen it begin
            self._steps.note(task.name, took)
