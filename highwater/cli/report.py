"""`highwater report RUN`: the HTML page of a run."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.error_lines import complain
from highwater.cli.places import OutputFile
from highwater.verdict import report as html
from highwater.verdict.tables import RunUnreadable


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--out", type=OutputFile(), help="Write it there.  [default: RUN/report.html]")
def report(run: Path, out: Path | None) -> None:
    """Write the HTML report of a run's folder: one file that needs nothing else.

    \b
    Example:
      highwater report runs/7
    """
    try:
        click.echo(html.write(run, out))
    except RunUnreadable as error:
        complain(str(error))
        raise SystemExit(3) from None
