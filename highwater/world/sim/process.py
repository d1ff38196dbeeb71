"""Simulated machines and the processes on them.

A `Host` is a machine: a name on the network, a disk, a clock.  A `Process` is one life of a program
there.  `kill` is kill -9: the process loses its memory, its tasks are cancelled, and their last
actions (closing files, saying goodbye) have no effect, because every call into the world then
raises `ProcessCrashed`.  The operating system keeps its own: the page cache, and the duty to reset
the connections.  `Host.power_loss` takes those as well.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from highwater.world.sim.kernel import PROCESS, Kernel

if TYPE_CHECKING:
    from highwater.world.sim.disk import SimDisk


class ProcessCrashed(BaseException):
    """The process was killed; raised at every further call into its world.

    Not an Exception: nothing in the program may catch it and carry on.
    """


class SimClock:
    """A machine's wall clock: an offset that may jump, and a drift.  `perf_ns` is virtual time."""

    def __init__(self, kernel: Kernel, epoch_ms: int = 1_700_000_000_000) -> None:
        self._timeline = kernel.timeline
        self._base_ms = float(epoch_ms)
        self._since = 0.0
        self.drift = 0.0

    def wall_ms(self) -> int:
        elapsed = self._timeline.now - self._since
        return int(self._base_ms + elapsed * 1000 * (1 + self.drift))

    def perf_ns(self) -> int:
        return int(self._timeline.now * 1e9)

    def jump(self, ms: int) -> None:
        self._base_ms += ms

    def set_drift(self, drift: float) -> None:
        """Sets the seconds gained a second; the time shown now stays."""
        self._base_ms = float(self.wall_ms())
        self._since = self._timeline.now
        self.drift = drift


class Host:
    """One machine.  `disk` is given by the simulation that makes it."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.clock = SimClock(kernel)
        self.disk: SimDisk
        self.up = True
        self.processes: list[Process] = []
        self.next_port = 40000
        self.lives = 0

    def __repr__(self) -> str:
        return self.name


class Process:
    """One life of a program on a host."""

    def __init__(self, host: Host, name: str) -> None:
        host.lives += 1
        self.host = host
        self.name = name
        self.life = host.lives
        self.kernel = host.kernel
        self.alive = True
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.failure: BaseException | None = None
        self.on_death: dict[object, Callable[[bool], None]] = {}
        """Its outside resources, in the order in which they were made -> what to call at its death,
        with True if the kernel still says goodbye (resets connections).
        """
        self.after_step: Callable[[], None] | None = None
        """An observer's function, called after each step of one of its tasks."""
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, self)
        self._held_calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        host.processes.append(self)

    def __repr__(self) -> str:
        return f"{self.name}.{self.life}"

    def check(self) -> None:
        if not self.alive:
            raise ProcessCrashed(self.name)

    @property
    def frozen(self) -> bool:
        return self in self.kernel.run_queue.frozen

    async def run(self, main: Callable[[], Awaitable[object]]) -> None:
        """Runs the program to its end; a failure is the process's death."""
        PROCESS.set(self)
        try:
            with self.scope:
                await main()
        except (trio.Cancelled, KeyboardInterrupt, GeneratorExit):
            if self.alive:
                raise
        except BaseException as error:
            if self.alive:
                self.failure = _without_cancelled(error)
                if self.failure is None:
                    raise
        finally:
            self.kill()
            self.ended.set()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Calls into the program from outside (a watch); waits while the process is frozen."""
        if not self.alive:
            return
        if self.frozen:
            self._held_calls.append((function, args))
            return
        self._context.run(function, *args)

    def kill(self, goodbye: bool = True) -> None:
        if not self.alive:
            return
        self.alive = False
        self.host.processes.remove(self)
        for call in list(self.on_death.values()):
            call(goodbye)
        self.on_death.clear()
        self._held_calls.clear()
        self.scope.cancel()
        self.kernel.run_queue.thaw(self)

    def freeze(self) -> None:
        if self.alive:
            self.kernel.run_queue.freeze(self)

    def thaw(self) -> None:
        if not self.alive:
            return
        self.kernel.run_queue.thaw(self)
        held, self._held_calls = self._held_calls, []
        for function, args in held:
            self.call(function, *args)


def _without_cancelled(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return error
