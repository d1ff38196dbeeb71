"""Virtual time and a scheduler that a seed decides: the base of everything else in `sim`.

Theory of operation.  trio asks its clock how long it may sleep only when no task can run.  At that
one moment virtual time moves: `_JumpClock` jumps to the next due thing, which is either a deadline
of trio's or an entry of the `Timeline` (a packet arrives, a session expires). Entries of the
timeline are plain calls made by the clock, without a task, which makes the simulated network cheap.
So time stands still while anything can run, and never waits.  The loop itself is `loop`.

Order.  The tasks that are ready in one pass are sorted by age and shuffled by a seeded generator:
the order of events becomes a function of the seed, in every process, whatever the hash seed is.

Freezing.  A paused process (SIGSTOP) must not run, although its timers fire and its packets arrive.
Every task carries its process in a context variable.  `_RunQueue` replaces trio's queue of runnable
tasks, and holds back those of a frozen process until it is thawed.

Hazards remain that code under simulation must avoid: the order of sets, `id()`, garbage collection
(switched off while a simulation runs), threads, the wall clock, uuid.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import marshal
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache
from heapq import heappop, heappush
from typing import Any, Protocol, TypeVar

import trio
from trio._core import _run as trio_run

from highwater.world.chance import Random, seeded
from highwater.world.sim.loop import simulation_loop

T = TypeVar("T")


class Life(Protocol):
    """A simulated process (`process.Process`), as its kernel and its disk see it."""

    alive: bool
    after_step: Callable[[], None] | None

    def check(self) -> None:
        """Raises ProcessCrashed if it was killed."""


PROCESS: ContextVar[Life | None] = ContextVar("simulated process", default=None)
"""The simulated process of a task, which inherits it from the task that started it."""

_MAX_PASSES_IN_ONE_INSTANT = 100_000
_MAX_IDLE_PASSES = 1000
_MARSHAL_VERSION = 2  # the last that does not depend on which objects are shared


class SimulationStuck(Exception):
    """No further event can happen, time no longer moves, or it has moved too far."""


class Timer:
    """A call that is due at a time; `cancel` makes it do nothing."""

    __slots__ = ("args", "call", "time")

    def __init__(self, time: float, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.time = time
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        self.call = None
        self.args = ()


class Timeline:
    """The future events: a heap of calls.  Those of one instant keep their order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fired = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0

    def after(self, delay: float, call: Callable[..., object], *args: Any) -> Timer:
        return self.at(self.now + delay, call, *args)

    def at(self, time: float, call: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(time if time > self.now else self.now, call, args)
        self._count += 1
        heappush(self._heap, (timer.time, self._count, timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """As `trio.sleep`, at a third of its cost: no scope, and nothing is cancelled."""
        task = trio.lowlevel.current_task()
        timer = self.at(self.now + seconds, trio.lowlevel.reschedule, task)

        def abort(_: object) -> trio.lowlevel.Abort:
            timer.cancel()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def next_time(self) -> float:
        heap = self._heap
        while heap and heap[0][2].call is None:
            heappop(heap)
        return heap[0][0] if heap else math.inf

    def advance(self, to: float) -> None:
        """Moves time and makes the due calls."""
        if to > self.now:
            self.now = to
        heap, now = self._heap, self.now
        while heap and heap[0][0] <= now:
            timer = heappop(heap)[2]
            if timer.call is not None:
                self.fired += 1
                timer.call(*timer.args)


class _JumpClock(trio.abc.Clock):
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.on_stuck: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self._idle_passes = 0

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._timeline.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        due = self._timeline.next_time()
        if deadline < due:
            due = deadline
        if due == math.inf:
            if self.failure is None:
                self.failure = SimulationStuck("no task can run and nothing is due: a deadlock")
                self.on_stuck()
            self._idle_passes += 1  # trio needs a few to end, with its own tasks
            if self._idle_passes > _MAX_IDLE_PASSES:
                raise RuntimeError(f"the simulation cannot end: {self.failure}")
            return 0
        try:
            self._timeline.advance(due)
        except BaseException as error:
            # an exception here would be an internal error of trio's, so end the run in order
            self.failure = error
            self.on_stuck()
        return 0


class _RunQueue(deque[Any]):
    """trio's queue of runnable tasks, which holds back those of frozen processes."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self.frozen: dict[Life, list[Any]] = {}
        self.ending = False
        self.passes = 0
        self._passes_at = -1.0
        self.on_spin: Callable[[], None] = lambda: None

    def append(self, task: Any) -> None:
        if self.frozen:
            process = task.context.get(PROCESS)
            held = self.frozen.get(process)
            if held is not None:
                held.append(task)
                return
        super().append(task)

    def next_pass(self) -> None:
        """Notices that time no longer moves."""
        self.passes += 1
        if self._timeline.now != self._passes_at:
            self._passes_at = self._timeline.now
            self.passes = 0
        elif self.passes == _MAX_PASSES_IN_ONE_INSTANT:
            self.on_spin()

    def freeze(self, process: Life) -> None:
        if self.ending:
            return
        self.frozen.setdefault(process, [])
        mine = [task for task in self if task.context.get(PROCESS) is process]
        for task in mine:
            self.remove(task)
            self.frozen[process].append(task)

    def thaw(self, process: Life) -> None:
        for task in self.frozen.pop(process, []):
            self.append(task)

    def thaw_all(self) -> None:
        """Thaws all for good before a simulation ends: frozen tasks could not be cancelled."""
        self.ending = True
        for process in list(self.frozen):
            self.thaw(process)


class Kernel:
    """One simulation's time, chance, run queue and digest.  Made by `run_simulation`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.timeline = Timeline()
        self.run_queue = _RunQueue(self.timeline)
        self._digest = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.steps = 0

    def stepped(self, task: Any) -> None:
        """A task has run to its next await."""
        self.steps += 1
        process = task.context.get(PROCESS)
        if process is not None and process.after_step is not None and process.alive:
            process.after_step()

    def random(self, *names: object) -> Random:
        """One generator for each use, so that one part's draws do not shift another's."""
        return seeded(self.seed, *names)

    def note(self, *what: Any) -> None:
        """Adds an event to the digest: two runs are equal when all their events are."""
        self.events += 1
        self._digest.update(marshal.dumps((self.timeline.now, what), _MARSHAL_VERSION))

    def digest(self) -> str:
        return self._digest.hexdigest()


def run_simulation(
    seed: int, main: Callable[[Kernel], Awaitable[T]], *, longest_s: float = math.inf
) -> T:
    """Runs `main(kernel)` under trio in virtual time, with every choice made by the seed.  Raises
    SimulationStuck where nothing can happen any more, or when `longest_s` have passed.
    """
    kernel = Kernel(seed)

    def end_late() -> None:
        raise SimulationStuck(f"it has not ended after {longest_s:g} virtual seconds")

    if longest_s < math.inf:
        kernel.timeline.at(longest_s, end_late)
    clock = _JumpClock(kernel.timeline)

    async def run() -> T:
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        kernel.run_queue.extend(runner.runq)
        runner.runq = kernel.run_queue
        with trio.CancelScope() as scope:

            def end() -> None:
                kernel.run_queue.thaw_all()
                scope.cancel()

            def spin() -> None:
                clock.failure = SimulationStuck(
                    f"{_MAX_PASSES_IN_ONE_INSTANT} passes at {kernel.timeline.now:.6f} s: "
                    "some task runs in circles without sleeping"
                )
                end()

            clock.on_stuck = end
            kernel.run_queue.on_spin = spin
            result = await main(kernel)
            if clock.failure is None:
                return result
        raise clock.failure or RuntimeError("the simulation was cancelled")

    collecting, usual_loop = gc.isenabled(), trio_run.unrolled_run
    try:
        trio_run.unrolled_run = simulation_loop(
            kernel.stepped, kernel.run_queue.next_pass, kernel.random("schedule").shuffle
        )
        _forget_garbage()
        return trio.run(run, clock=clock)
    finally:
        trio_run.unrolled_run = usual_loop
        if collecting:
            gc.enable()


def _forget_garbage() -> None:
    """Switches collection off for the simulation."""
    gc.collect()
    _freeze()
    gc.disable()


@cache
def _freeze() -> None:
    """Objects from before the first simulation stay for good (modules, mostly), and are not looked
    through again.  Done once: gc.get_freeze_count, too, would look through all of them."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # a leak check at the end then finds none
