"""`--add-scram`: its forms, and how its passwords stay out of process lists.

A text on the command line would stand in every process list for as long as the cluster runs.  So
the program is started again, as the same process, with a pipe that has the texts: `@/dev/fd/N`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from highwater.kafka.security.scram_arguments import ScramArgumentError, parse_all

OPTION = "--add-scram"
VARIABLE = "HIGHWATER_ADD_SCRAM"
_MOST_BYTES = 60_000
"""A pipe holds 64 KiB."""


def scram_texts(
    context: click.Context, option: click.Parameter, words: Sequence[str]
) -> tuple[str, ...]:
    """The callback: checks the texts, and gives those of the command line, of files, and of the
    environment.  A text on the command line starts the program again."""
    shown = [word for word in words if not word.startswith("@")]
    texts = [*shown, *os.environ.pop(VARIABLE, "").splitlines()]
    for word in words:
        if word.startswith("@"):
            texts += _lines(word[1:])
    texts = [text.strip() for text in texts if text.strip()]
    try:
        parse_all(texts)
    except ScramArgumentError as error:
        raise click.BadParameter(str(error)) from None
    if sum(len(text.encode()) + 1 for text in texts) > _MOST_BYTES:
        raise click.BadParameter(f"more than {_MOST_BYTES} bytes: make the other users later")
    if shown and sys.orig_argv[-len(sys.argv) + 1 :] == sys.argv[1:]:
        _start_again(texts)
    return tuple(texts)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise click.BadParameter(f"{path}: {why}: name a file with one user a line") from None


def pipe_of(texts: Sequence[str]) -> int:
    """The end of a pipe, to be inherited, from which a child reads these texts: `@/dev/fd/N`."""
    end, begin = os.pipe()
    os.write(begin, "".join(f"{text}\n" for text in texts).encode())
    os.close(begin)
    os.set_inheritable(end, True)
    return end


def _start_again(texts: Sequence[str]) -> None:
    before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    words, left = [], iter(sys.argv[1:])
    for word in left:
        if word == OPTION:
            next(left, None)
        elif not word.startswith(f"{OPTION}="):
            words.append(word)
    words.append(f"{OPTION}=@/dev/fd/{pipe_of(texts)}")
    os.execv(sys.executable, [*before, *words])
