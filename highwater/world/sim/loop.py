"""trio's run loop, as a simulation needs it.

At each pass trio's own loop asks the operating system for events, and its instruments whether they
want to know.  With most passes running a single task for some ten microseconds, that is a good part
of a simulation's time.  This loop replaces it while a simulation runs.  Tasks, nurseries, cancel
scopes and deadlines stay trio's; the omitted parts have no use in virtual time: sockets, threads,
instruments.  Signals are checked once in some hundred passes, for Ctrl-C.

One pass: cancel what has reached its deadline; then run each ready task once, in an order that
`shuffle` decides.  After each task's step `stepped(task)` is called: the step ran to its next
await, so it is atomic for tasks and observers alike.

It is written for the version of trio in requirements.lock; the contract tests, which run on it,
tell whether another version still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

import trio
from outcome import Error, Outcome, Value
from trio._core import _run as trio_run
from trio._core._traps import CancelShieldedCheckpoint, WaitTaskRescheduled

_PASSES_BETWEEN_SIGNALS = 512
_FRAMES_OF_THE_LOOP = 1 + trio_run.CONTEXT_RUN_TB_FRAMES

Loop = Callable[..., Generator[float, Any, None]]


class _NoInstruments(dict[str, Any]):
    """An empty set of instruments: trio asks for each event, and a plain dict answers fastest."""


def simulation_loop(
    stepped: Callable[[Any], None], next_pass: Callable[[], None], shuffle: Callable[[Any], None]
) -> Loop:
    """The replacement of trio's `unrolled_run`."""

    def run(
        runner: Any, async_fn: Any, args: Any, host_uses_signal_set_wakeup_fd: bool = False
    ) -> Generator[float, Any, None]:
        try:
            runner.entry_queue.wakeup.wakeup_on_signals()
            runner.instruments = _NoInstruments()
            runner.init_task = runner.spawn_impl(
                runner.init, (async_fn, args), None, "<init>", system_task=True
            )
            yield from _passes(runner, stepped, next_pass, shuffle)
        except trio.TrioInternalError:
            raise
        except GeneratorExit:
            raise
        except BaseException as error:
            raise trio.TrioInternalError("the simulation's loop failed") from error
        finally:
            runner.close()
            trio_run.GLOBAL_RUN_CONTEXT.__dict__.clear()
            if runner.ki_pending:
                runner.main_task_outcome = Error(KeyboardInterrupt())

    return run


def _passes(
    runner: Any,
    stepped: Callable[[Any], None],
    next_pass: Callable[[], None],
    shuffle: Callable[[Any], None],
) -> Generator[float, Any, None]:
    deadlines, clock, context = runner.deadlines, runner.clock, trio_run.GLOBAL_RUN_CONTEXT
    passes = 0
    while runner.tasks:
        passes += 1
        if passes % _PASSES_BETWEEN_SIGNALS == 0:
            runner.io_manager.process_events((yield 0))
        if not runner.runq:
            clock.deadline_to_sleep_time(deadlines.next_deadline())
        deadlines.expire(clock.current_time())
        runq = runner.runq
        batch = list(runq)
        runq.clear()
        next_pass()
        if len(batch) > 1:
            batch.sort(key=_age)
            shuffle(batch)
        while batch:
            context.task = task = batch.pop()
            _step(runner, task)
            stepped(task)
        context.__dict__.pop("task", None)


def _age(task: Any) -> int:
    age: int = task._counter
    return age


def _step(runner: Any, task: Any) -> None:
    """Runs one task to its next await, and does what its await asks for."""
    send, value = task._next_send_fn, task._next_send
    task._next_send_fn = task._next_send = None
    ended: Outcome[object]
    try:
        asks = task.context.run(send, value)
    except StopIteration as end:
        ended = Value(end.value)
    except BaseException as error:
        ended = Error(error.with_traceback(_without_the_loop(error.__traceback__)))
    else:
        task._schedule_points += 1
        if type(asks) is WaitTaskRescheduled:
            task._cancel_points += 1
            task._abort_func = asks.abort_func
            if runner.ki_pending and task is runner.main_task:
                task._attempt_delivery_of_pending_ki()
            if task._cancel_status.effectively_cancelled:
                task._attempt_delivery_of_any_pending_cancel()
        elif asks is CancelShieldedCheckpoint:
            runner.reschedule(task)
        else:
            raise trio.TrioInternalError(f"{task!r} asks for {asks!r}")
        return
    runner.task_exited(task, ended)


def _without_the_loop(trace: TracebackType | None) -> TracebackType | None:
    for _ in range(_FRAMES_OF_THE_LOOP):
        if trace is not None:
            trace = trace.tb_next
    return trace
