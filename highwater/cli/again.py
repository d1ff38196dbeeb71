"""The command that repeats a run: what was given on the command line, with the seed that it had."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

_ANOTHER_TIME: Final = {"--seed", "--out", "--json", "--keep"}
"""Options that do not say what is run, or that come with the run's own value."""
_HIDDEN: Final = ("password", "secret", "token", "jaas", "credential")
"""A property whose name holds one of these keeps its value to itself."""


def command_again(seed: int) -> str:
    """The command line of this process's command, to be shown and copied."""
    context = click.get_current_context()
    words = ["highwater", context.info_name or "", f"--seed={seed}"]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is click.core.ParameterSource.COMMANDLINE:
            words += _words(parameter, context.params[parameter.name or ""])
    return shlex.join(words)


def _words(parameter: click.Parameter, value: Any) -> Iterator[str]:
    name = max(parameter.opts, key=len)
    if name in _ANOTHER_TIME or not isinstance(parameter, click.Option):
        return
    if parameter.is_flag:
        if value:
            yield name
        return
    for each in _each(value) if parameter.multiple else (value,):
        hidden = name.endswith("-command")
        yield f"{name}={'…' if hidden else _shown(each)}"


def _each(value: Any) -> Sequence[Any]:
    return [f"{key}={text}" for key, text in value.items()] if isinstance(value, dict) else value


def _shown(value: Any) -> str:
    name, has_value, _ = str(value).partition("=")
    if has_value and any(word in name.lower() for word in _HIDDEN):
        return f"{name}=…"
    return str(value)
