"""Errors for users: one line that names the thing and the remedy, and never a traceback for bad
input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


def complain(message: str) -> None:
    """Every error and warning of the command line begins in this one way."""
    click.echo(f"highwater: {message}", err=True)


@contextmanager
def click_errors() -> Iterator[None]:
    """Says click's own errors as `complain` does, after the usage where the arguments are wrong."""
    try:
        yield
    except getattr(click.exceptions, "NoArgsIsHelpError", ()):
        raise  # it is the help
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            usage, path = error.ctx.get_usage(), error.ctx.command_path
            click.echo(f"{usage}\nTry '{path} --help' for help.\n", err=True)
        complain(error.format_message())
        raise click.exceptions.Exit(error.exit_code) from None


def _clear() -> tuple[type[BaseException], ...]:
    """The errors whose text is meant for users; imported late, so that start-up stays fast."""
    from highwater.chaos.workloads.workload_process import WorkloadDied
    from highwater.child_processes import StartError
    from highwater.client_calls import ClientHangs
    from highwater.cluster.faults.fault_model import ScheduleError
    from highwater.cluster.faults.witness import WitnessError
    from highwater.cluster.interface import ClusterError
    from highwater.cluster.ports import PortInUse

    ours = (ClusterError, PortInUse, ScheduleError, StartError, WitnessError, WorkloadDied)
    places = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)
    return (*ours, ClientHangs, *places, PermissionError)


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
            complain(_line(known[0]))
            raise SystemExit(exit_code) from None
        raise
