"""See the package's docstring, and `--help`."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import click

from highwater.child_processes import StartError
from highwater.cluster.processes.apache import home
from highwater.cluster.processes.programs import ApacheKafka
from highwater.cluster.target import release
from tests.suites.result import FAILED, PASSED, SKIPPED, NoResults, Result
from tests.suites.running import CannotRun, Suite, work_folder
from tests.suites.suites import SUITES

LEFT_OUT = tomllib.loads(Path(__file__).with_name("left_out.toml").read_text())
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""KRaft's counterpart of AclAuthorizer.  Its rules are records of the cluster's metadata."""
BESIDE = "apache:4.2.0"
NAMES = [suite.name for suite in SUITES]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--source", "sources", multiple=True, metavar="NAME=DIR",
    help="A copy of the suite's repository, where it cannot be cloned.",
)  # fmt: skip
@click.option(
    "--on", "kind", default="highwater", metavar="highwater|apache|apache:VERSION",
    help="The same on Apache Kafka, to see whose fault a failure is; apache is 3.9 with the"
    " features of 2.6, and apache:4.2.0 is in KRaft mode.",
)  # fmt: skip
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--docs",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the table of what ran, and of what is left out and why, here (Markdown).",
)
def main(
    names: tuple[str, ...],
    sources: tuple[str, ...],
    kind: str,
    json_file: Path | None,
    docs: Path | None,
) -> None:
    """Run the test suites that clients publish against a cluster; all of them, or those named.

    Needs Go for franz-go, sarama and kafka-go; git for kafka-python, aiokafka, kazoo, librdkafka,
    kafkajs and platformatic; a C and a C++ compiler and libzstd for librdkafka, Node.js for kafkajs
    and platformatic, a JDK for streams, and Maven for Kafka's jars.  Exit code 0: everything that
    was run passed; 1: something failed; 2: a suite could not be run.

    \b
    Example:
      scripts/client-suites franz-go
    """
    copies = dict(word.partition("=")[::2] for word in sources)
    try:
        program = None if kind in ("highwater", "apache") else release(kind).program()
    except StartError as error:
        raise click.UsageError(str(error)) from error
    ran: dict[str, list[Result]] = {}
    broken = False
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        click.echo(f"{suite.name} {suite.version}")
        copied = copies.get(suite.name) or copies.get(suite.variant_of)
        copy = Path(copied).absolute() if copied else None
        try:
            chosen = suite if kind == "highwater" else on_apache(suite, program)
            ran[suite.name] = _run(chosen, copy)
        except (CannotRun, NoResults) as error:
            click.echo(f"{suite.name} cannot be run: {error}", err=True)
            broken = True
    if json_file is not None:
        rows = {
            name: [[r.test, r.outcome, r.seconds] for r in found] for name, found in ran.items()
        }
        json_file.write_text(json.dumps(rows, indent=1) + "\n")
    if docs is not None:
        docs.write_text(page(ran, docs.read_text() if docs.exists() else "", kind))
    if broken:
        raise SystemExit(2)
    raise SystemExit(any(r.outcome == FAILED for found in ran.values() for r in found))


def on_apache(suite: Suite, program: ApacheKafka | None = None) -> Suite:
    """On that release; without one on 3.9 with the features of 2.6: topics without ids, for one."""
    if program is None:
        features = {"inter.broker.protocol.version": "2.6"}
        return replace(suite, program=ApacheKafka(home()), properties=suite.properties | features)
    properties = dict(suite.properties)
    if program.kraft and "authorizer.class.name" in properties:
        # its voters ask each other before they have the rules, which only super users may
        properties |= {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
    return replace(suite, program=program, properties=properties)


def _run(suite: Suite, source: Path | None) -> list[Result]:
    names = (suite.variant_of, suite.name)
    pattern = "|".join(p for name in names for p in LEFT_OUT.get(name, {})) or "^$"
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


def page(ran: dict[str, list[Result]], earlier: str, kind: str = "highwater") -> str:
    """Suites that were not run keep the rows that they have in the earlier page.  What ran on
    Apache Kafka 4.2 is in a table of its own, and in no other."""
    rows = {found[1]: found[0] for found in re.finditer(r"(?m)^\| \[([\w-]+)\]\(.*\|$", earlier)}
    others = dict(re.findall(r"(?m)^\| ([\w-]+) \| \d+, \d+ \| (\d+, \d+) \|$", earlier))
    if kind == BESIDE:
        for name, results in ran.items():
            others[name] = f"{_count(results, PASSED)}, {_count(results, FAILED)}"
    if kind != "highwater":
        ran = {}
    old_failed = re.findall(r"(?m)^- ([\w-]+): `(.*)`$", earlier)
    failed = [(name, test) for name, test in old_failed if name not in ran]
    lines = [
        "# The clients' own tests",
        "",
        "Made by `scripts/client-suites --docs docs/clients.md`: each suite as its project",
        "publishes it, against a Highwater cluster. Skipped: by the suite itself, which asks the",
        "broker what it can do. The suites' cluster has PLAINTEXT listeners; Highwater's own tests",
        "cover TLS and SASL. java-tools are Kafka's command-line tools, each judged by its exit",
        "code and what it prints, and java-tools-of-4 what is new in those of 4; streams is a",
        "program on Kafka Streams with joins, windows and stores, exactly once. librdkafka-848 is",
        "librdkafka's suite with `group.protocol=consumer`. Its tests of share consumers are run",
        "whole, all others without their slow parts (`-Q`); 0174 gives a producer two minutes for",
        "5,000 flushes, so it needs a machine that does nothing else. `--on apache` runs a suite",
        "on Apache Kafka 3.9 with the features of 2.6, and `--on apache:4.2.0` on 4.2 in KRaft",
        "mode, to see whose fault a failure is. kafka-python's consumers lose a subscription now",
        "and then, on Apache Kafka as well ([why](client-problems.md)); then one of its tests",
        "fails. kazoo's tests ask no broker: they are run on the ZooKeeper of `highwater up",
        "--zookeeper embedded`, and with `--on apache` on Java's.",
        "",
        "| suite | version | passed | failed | skipped | minutes |",
        "|---|---|---|---|---|---|",
    ]
    for suite in SUITES:
        found = ran.get(suite.name)
        if found is not None:
            counts = " | ".join(str(_count(found, o)) for o in (PASSED, FAILED, SKIPPED))
            minutes = sum(result.seconds for result in found) / 60
            link = f"[{suite.name}]({suite.source})"
            lines.append(f"| {link} | {suite.version} | {counts} | {minutes:.1f} |")
            failed += [(suite.name, r.test) for r in found if r.outcome == FAILED]
        elif suite.name in rows:
            lines.append(rows[suite.name])
    lines += _beside(lines, others)
    lines += ["", "## Left out", "", "| suite | tests | why |", "|---|---|---|"]
    for name, patterns in LEFT_OUT.items():
        lines += [f"| {name} | `{pattern}` | {why} |" for pattern, why in patterns.items()]
    if failed:
        lines += ["", "## Failed", "", *(f"- {name}: `{test}`" for name, test in failed)]
    return "\n".join(lines) + "\n"


def _beside(lines: list[str], others: dict[str, str]) -> list[str]:
    """The table beside Apache Kafka 4.2, of suites that have a row among the lines."""
    rows = []
    for line in lines:
        if (found := re.match(r"\| \[([\w-]+)\]\S* \| \S+ \| (\d+) \| (\d+) \|", line)) is None:
            continue
        name, passed, failed = found.groups()
        if name in others:
            rows.append(f"| {name} | {passed}, {failed} | {others[name]} |")
    if not rows:
        return []
    head = ["| suite | passed, failed on Highwater | on Apache Kafka 4.2 |", "|---|---|---|"]
    said = [
        f"The same with `--on {BESIDE}`, in KRaft mode. librdkafka's 0109, 0115 and 0119 fail",
        "there: they make rules against the suites' own user, a super user for KRaft's sake.",
    ]
    return ["", "## Beside Apache Kafka 4.2", "", *said, "", *head, *rows]


if __name__ == "__main__":
    main(prog_name="scripts/client-suites")
