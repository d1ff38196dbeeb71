"""Each `highwater …` and `scripts/…` on a page exists, with its subcommand and its options.

Commands are read from blocks of code and from code within a line, and go through the command line's
own parser.  Nothing runs, and no argument is looked at: it may be a placeholder, such as RUN.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from highwater.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_BEFORE = r"(?:^|[\s|;(])(?:[A-Z_]+=\S+ +)*(?:\.venv/bin/|\./)?"
_COMMAND = re.compile(rf"{_BEFORE}((?:highwater|scripts/[\w-]+)(?= |$).*)")
_END = re.compile(r"\s(?:#|\||&&|;|>|2>|&).*|[;)].*")
_FENCE = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_OF_SHELLS = ("", "sh", "bash", "shell", "console")


def commands(text: str) -> Iterator[str]:
    """The command lines of a page, each without what follows it in its line."""
    shown = [inside.replace("\\\n", " ") for kind, inside in _FENCE.findall(text)
             if kind.strip() in _OF_SHELLS]  # fmt: skip
    lines = [line for block in shown for line in block.splitlines()]
    within = re.findall(r"`([^`]+)`", _FENCE.sub("", text))
    lines += [re.sub(r"\s*\n\s*", " ", code) for code in within]
    for line in lines:
        for part in re.split(r"\s(?:&&|\|\||\||;)\s+", line.strip().removeprefix("$ ")):
            if found := _COMMAND.match(part):
                yield _END.sub("", found[1]).strip()


def wrong(line: str) -> str | None:
    """The first thing that a command line names and that does not exist, or None."""
    try:
        program, *words = shlex.split(line)
    except ValueError as error:
        return str(error)
    if program.startswith("scripts/"):
        return _wrong_script(ROOT / program, words)
    command: click.Command = cli
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        below = command.get_command(context, name)
        if below is None:
            if re.fullmatch(r"[A-Z]+|…|\.\.\.", name):
                return None  # any subcommand
            return f"no command {name!r}"
        command, context = below, click.Context(below, context, name)
    try:
        try:
            given, _, _ = command.make_parser(context).parse_args(list(words))
        except click.BadOptionUsage:
            # a sentence names the option alone
            given, _, _ = command.make_parser(context).parse_args([*words, "VALUE"])
        for param in command.get_params(context):
            if isinstance(param.type, click.Choice) and (value := given.get(param.name or "")):
                for one in value if isinstance(value, (list, tuple)) else [value]:
                    if not str(one).isupper():  # a placeholder
                        param.type.convert(one, param, context)
    except click.UsageError as error:
        return error.format_message()
    return None


def _wrong_script(script: Path, words: list[str]) -> str | None:
    if not script.is_file():
        return f"no {script.relative_to(ROOT)}"
    text = script.read_text()
    if script.name == "test":
        return None  # what it does not know is pytest's
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in text:
            return f"{script.name} has no {option}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_tells_to_type_is_there(page: Path) -> None:
    found = {line: wrong(line) for line in commands(page.read_text())}
    assert {line: why for line, why in found.items() if why} == {}


def test_the_pages_have_commands() -> None:
    found = [line for page in PAGES for line in commands(page.read_text())]
    assert "highwater up --detach" in found
    assert "scripts/setup" in found
    assert len(found) > 100, "the pages are not read as they are written"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("highwater upp", "no command 'upp'"),
        ("highwater up --detacch", "--detacch"),
        ("highwater bench produuce", "no command 'produuce'"),
        ("highwater up --runtime podman", "'podman' is not one of"),
        ("scripts/nothing", "no scripts/nothing"),
        ("scripts/check --statik", "check has no --statik"),
        ("highwater up --detach", None),
    ],
)
def test_what_is_not_there_is_told(line: str, why: str | None) -> None:
    told = wrong(line)
    assert told == why if why is None else why in str(told)
