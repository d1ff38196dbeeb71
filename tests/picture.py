"""docs/demo.svg, the picture in the README: what two commands print, of a valid run and of an
invalid one.

python -m tests.picture VALID.txt INVALID.txt docs/demo.svg

Lines are left out, at the places of "…", and none is changed but for folders.  `scripts/picture`
runs the commands; a test holds the checks and words of the picture against those of today.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 96
VALID = "$ highwater demo"
INVALID = '$ highwater chaos --app "python commits_first.py" --input orders --output invoices'
FAULTS = (
    *("kill ", "pause ", "cut ", "lose_unreplicated ", "move_controller ", "swap_leader "),
    *("refuse_output ", "reorder_output "),
)
SHOWN_FAULTS, SHOWN_CHECKS = 4, 7
_ROW = re.compile(r"[│┃] (\w+) +[│┃] (.+?) +[│┃] +([\d,]+|examined) [│┃] (.+?) +[│┃] (\w+) +[│┃]")
_TIMED = re.compile(r" +([\d.]+)s +(.*)")


def told(output: str) -> Iterator[str]:
    """The lines of one command that the picture shows."""
    lines = output.splitlines()
    faults = 0
    for line in lines:
        found = _TIMED.match(line)
        if found is None:
            continue
        what = found[2]
        if what.startswith(FAULTS):
            faults += 1
            if faults <= SHOWN_FAULTS:
                yield line
            elif faults == SHOWN_FAULTS + 1:
                yield "        …"
        elif "serve after" in what or what in ("healing", "checking"):
            yield line
    word = next(i for i, line in enumerate(lines) if line.startswith(("valid", "invalid")))
    yield ""
    yield from _wrapped(lines[word - 2])
    rows = table(output)
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    yield ""
    for row in rows[: SHOWN_CHECKS + 1]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if len(rows) > SHOWN_CHECKS + 1:
        yield f"… and {len(rows) - SHOWN_CHECKS - 1} more"
    yield from (line for line in lines if line.startswith("verdict "))


def table(output: str) -> list[tuple[str, ...]]:
    """The table of checks, its header first."""
    return [found.groups() for found in map(_ROW.match, output.splitlines()) if found]


def _wrapped(line: str) -> list[str]:
    words, out = line.split(), [""]
    for word in words:
        if len(out[-1]) + len(word) >= WIDTH:
            out.append("")
        out[-1] = f"{out[-1]} {word}".strip()
    return out


def picture(valid: str, invalid: str) -> str:
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere)
        for command, output in ((VALID, valid), (INVALID, invalid)):
            console.print(Text(command, style="bold"))
            for line in told(output):
                console.print(Text(line, style=_style(line), overflow="ellipsis", no_wrap=True))
            console.print()
        svg = console.export_svg(title="highwater")
    # the page that shows it has fonts of its own: nothing is fetched from elsewhere
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    return re.sub(r"<!-- Generated with Rich [^>]*-->", "", svg)


def _style(line: str) -> str:
    if "violated" in line or line.endswith(" invalid") or " is not in " in line:
        return "bold red"
    if line.endswith(" valid") or "nothing lost" in line:
        return "bold green"
    return "yellow" if any(f" {fault}" in line for fault in FAULTS) else ""


def text_of(svg: str) -> str:
    """What a picture shows, as text."""
    shown = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return unescape("\n".join(shown)).replace("\xa0", " ")


if __name__ == "__main__":
    first, second, target = map(Path, sys.argv[1:])
    target.write_text(picture(first.read_text(), second.read_text()))
