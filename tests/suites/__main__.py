"""See the package's docstring, and `--help`."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import click

from tests.suites.result import FAILED, PASSED, SKIPPED, NoResults, Result
from tests.suites.suites import SUITES, CannotRun, Suite, work_folder

LEFT_OUT = tomllib.loads(Path(__file__).with_name("left_out.toml").read_text())
NAMES = [suite.name for suite in SUITES]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--source", "sources", multiple=True, metavar="NAME=DIR",
    help="A copy of the suite's repository, where it cannot be cloned.",
)  # fmt: skip
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--docs",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the table of what ran, and of what is left out and why, here (Markdown).",
)
def main(
    names: tuple[str, ...], sources: tuple[str, ...], json_file: Path | None, docs: Path | None
) -> None:
    """Run the test suites that clients publish against a cluster; all of them, or those named.

    Needs Go for franz-go and sarama, git for kafka-python and aiokafka.  Exit code 0: everything
    that was run passed; 1: something failed; 2: a suite could not be run.

    \b
    Example:
      scripts/client-suites franz-go
    """
    copies = dict(word.partition("=")[::2] for word in sources)
    ran: dict[str, list[Result]] = {}
    broken = False
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        click.echo(f"{suite.name} {suite.version}")
        copy = Path(copies[suite.name]).absolute() if suite.name in copies else None
        try:
            ran[suite.name] = _run(suite, copy)
        except (CannotRun, NoResults) as error:
            click.echo(f"{suite.name} cannot be run: {error}", err=True)
            broken = True
    if json_file is not None:
        rows = {
            name: [[r.test, r.outcome, r.seconds] for r in found] for name, found in ran.items()
        }
        json_file.write_text(json.dumps(rows, indent=1) + "\n")
    if docs is not None:
        docs.write_text(_page(ran))
    if broken:
        raise SystemExit(2)
    raise SystemExit(any(r.outcome == FAILED for found in ran.values() for r in found))


def _run(suite: Suite, source: Path | None) -> list[Result]:
    pattern = "|".join(LEFT_OUT.get(suite.name, {})) or "^$"
    work = work_folder(suite.name)
    results = suite.run(suite, pattern, source, work)
    if any(result.outcome == FAILED for result in results):
        kept = work / "failed"
        shutil.rmtree(kept, ignore_errors=True)
        (work / "cluster").rename(kept)
        click.echo(f"the cluster's logs: {kept}")
    for result in results:
        if result.outcome == FAILED:
            click.echo(f"FAILED {result.test}\n{result.said}")
    click.echo("  ".join(f"{_count(results, o)} {o}" for o in (PASSED, FAILED, SKIPPED)))
    return results


def _count(results: list[Result], outcome: str) -> int:
    return sum(result.outcome == outcome for result in results)


def _page(ran: dict[str, list[Result]]) -> str:
    lines = [
        "# The clients' own tests",
        "",
        "Made by `scripts/client-suites --docs docs/clients.md`: each suite as its project",
        "publishes it, against a Highwater cluster. Skipped: by the suite itself, which asks the",
        "broker what it can do. The suites' cluster has PLAINTEXT listeners and no authorizer;",
        "Highwater's own tests cover TLS, SASL and access rules. kafka-python's consumers lose a",
        "subscription now and then, on Apache Kafka as well ([why](client-problems.md)); then one",
        "of its tests fails.",
        "",
        "| suite | version | passed | failed | skipped | minutes |",
        "|---|---|---|---|---|---|",
    ]
    for suite in SUITES:
        found = ran.get(suite.name)
        if found is not None:
            counts = " | ".join(str(_count(found, o)) for o in (PASSED, FAILED, SKIPPED))
            minutes = sum(result.seconds for result in found) / 60
            lines.append(
                f"| [{suite.name}]({suite.source}) | {suite.version} | {counts} | {minutes:.1f} |"
            )
    lines += ["", "## Left out", "", "| suite | tests | why |", "|---|---|---|"]
    for name, patterns in LEFT_OUT.items():
        lines += [f"| {name} | `{pattern}` | {why} |" for pattern, why in patterns.items()]
    failed = [(n, r.test) for n, found in ran.items() for r in found if r.outcome == FAILED]
    if failed:
        lines += ["", "## Failed", "", *(f"- {name}: `{test}`" for name, test in failed)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(prog_name="scripts/client-suites")
