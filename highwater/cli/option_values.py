"""Callbacks of options that several commands have: they check a value, and give it in its form."""

from __future__ import annotations

from collections.abc import Sequence

import click

from highwater.child_processes import StartError
from highwater.cluster.processes.zookeeper_choice import checked


def named_values(
    context: click.Context, option: click.Parameter, words: Sequence[str]
) -> dict[str, str]:
    """NAME=VALUE, as in server.properties; the option may be repeated."""
    found = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{word!r} is not NAME=VALUE, as in num.partitions=4")
        found[name.strip()] = value.strip()
    return found


def zookeeper_option(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str:
    """`--zookeeper`; empty where it was not given.  UsageError for one that makes no sense."""
    try:
        return checked(text or "")
    except StartError as error:
        raise click.BadParameter(str(error)) from None
