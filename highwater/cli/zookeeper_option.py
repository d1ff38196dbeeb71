"""`--zookeeper`, of `up`, `demo` and `chaos`."""

from __future__ import annotations

import click

from highwater.child_processes import StartError
from highwater.cluster.processes.zookeeper_choice import checked


def zookeeper_option(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str:
    """Its value; empty where it was not given.  UsageError for one that makes no sense."""
    try:
        return checked(text or "")
    except StartError as error:
        raise click.BadParameter(str(error)) from None
