"""`highwater docs`: the pages; an installation carries them, a clone has them beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from highwater.cli.error_lines import complain

PACKAGE = Path(__file__).resolve().parents[1]


def pages() -> Iterator[Path]:
    """The pages, by name; none in an installation that is not whole."""
    for folder in (PACKAGE / "docs", PACKAGE.parent / "docs"):
        if folder.is_dir():
            yield from sorted(folder.glob("*.md"), key=lambda path: path.stem)
            return


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
        for name, path in found.items():
            title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            click.echo(f"{name:<16} {title}")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        complain(f"there is no page {page!r}; there are {', '.join(found)}")
        raise SystemExit(2)
    click.echo(found[name].read_text("utf-8"), nl=False)
