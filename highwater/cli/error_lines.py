"""Errors for users: one line that names the thing and the remedy, and never a traceback for bad
input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


def _clear() -> tuple[type[BaseException], ...]:
    """The errors whose text is meant for users; imported late, so that start-up stays fast."""
    from highwater.chaos.workloads.workload_process import WorkloadDied
    from highwater.child_processes import StartError
    from highwater.cluster.faults.model import ScheduleError
    from highwater.cluster.faults.witness import WitnessError
    from highwater.cluster.interface import ClusterError
    from highwater.cluster.ports import PortInUse

    ours = (ClusterError, PortInUse, ScheduleError, StartError, WitnessError, WorkloadDied)
    places = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
    return (*ours, *places, PermissionError)


def _line(error: BaseException) -> str:
    """A file's error without its number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside (nested) groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


@contextmanager
def clear_errors(exit_code: int = 1) -> Iterator[None]:
    """Turns errors meant for users into one line and an exit code; all others pass."""
    try:
        yield
    except BaseException as error:
        found = list(leaves(error))
        if any(isinstance(e, KeyboardInterrupt) for e in found):
            raise SystemExit(130) from None
        known = [e for e in found if isinstance(e, _clear())]
        if known and len(known) == len(found):
            click.echo(f"highwater: {_line(known[0])}", err=True)
            raise SystemExit(exit_code) from None
        raise
