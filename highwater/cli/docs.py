"""`highwater docs`: the pages; an installation carries them, a clone has them beside it.

docs/README.md has their order, and tells those for users from those about the project's own tests,
which an installation leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from highwater.cli.error_lines import complain

INDEX = "README"
PACKAGE = Path(__file__).resolve().parents[1]


def pages() -> Iterator[Path]:
    """The pages, by name; none in an installation that is not whole."""
    for folder in (PACKAGE / "docs", PACKAGE.parent / "docs"):
        if folder.is_dir():
            found = (path for path in folder.glob("*.md") if path.stem != INDEX)
            yield from sorted(found, key=lambda path: path.stem)
            return


def sections(index: str) -> dict[str, list[str]]:
    """The names of the pages by the titles of the index's sections."""
    found: dict[str, list[str]] = {}
    for line in index.splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        elif named := re.match(r"- \[([\w-]+)\.md\]", line):
            found[list(found)[-1]].append(named[1])
    return found


@click.command()
@click.argument("page", required=False)
def docs(page: str | None) -> None:
    """List the pages of the documentation, or print one.

    \b
    Examples:
      highwater docs
      highwater docs pytest | less
    """
    found = {path.stem: path for path in pages()}
    if not found:
        complain("the pages are not in this installation: install the package again")
        raise SystemExit(1)
    if page is None:
        index = next(iter(found.values())).with_name(f"{INDEX}.md").read_text("utf-8")
        there = {
            section: [name for name in names if name in found]
            for section, names in sections(index).items()
        }
        for number, (section, names) in enumerate((s, n) for s, n in there.items() if n):
            click.echo(f"{chr(10) * bool(number)}{section}")
            for name in names:
                title = found[name].read_text("utf-8").partition("\n")[0].removeprefix("# ")
                click.echo(f"  {name:<18} {title}")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        complain(f"there is no page {page!r}; there are {', '.join(found)}")
        raise SystemExit(2)
    click.echo(found[name].read_text("utf-8"), nl=False)
