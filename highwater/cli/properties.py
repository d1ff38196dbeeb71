"""NAME=VALUE options: broker properties, as in server.properties."""

from __future__ import annotations

from collections.abc import Sequence

import click


def named_values(
    context: click.Context, option: click.Parameter, words: Sequence[str]
) -> dict[str, str]:
    """The callback of an option that may be repeated."""
    found = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{word!r} is not NAME=VALUE, as in num.partitions=4")
        found[name.strip()] = value.strip()
    return found
