"""docs/mutants-generated.md: what is kept of the sample's rows.

A survivor's explanation is in `explained.json`, by the mutant's id, and begins with its kind:
`equivalent` (no run of anything could tell it from the product), `harmless` (it can be told, but
breaks nothing that Highwater promises), or `gap` (seeds should find it, and what they lack).  So
does that of a mutant that no seed reaches, or it begins with `test` and names one that finds it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tests.simulation.generated.maker import ROOMS, RULES, Made
from tests.simulation.generated.samples import wilson
from tests.simulation.generated.trials import FOUND, UNFOUND, Row, Rows

PAGE = "docs/mutants-generated.md"
EXPLAINED = Path(__file__).parent / "explained.json"
KINDS = ("equivalent", "harmless", "gap")
TESTED = "test"
NOT_YET = "not explained yet"

_HEAD = """# Generated mutants

`tests/simulation/generated` makes mutants by rule: small changes of single expressions and
statements of the broker's replica, log, coordinator and metadata rooms and of the controller. A
sample of them, stratified by room and rule, runs in the simulation on the seeds that run the
changed statement, at most {cpu} CPU seconds each. Only seeds find them: no unit test is run, and
the product's own assertions are off. The mutants that were thought of by hand are in
[mutants-sim.md](mutants-sim.md).

```
python -m tests.simulation.generated reach     which seeds run which statements
python -m tests.simulation.generated run       goes on where it was cut off
python -m tests.simulation.generated page      makes this page
```

`scripts/long generated-mutants` does all three. {counts}

"""


def explanations(path: Path = EXPLAINED) -> dict[str, str]:
    return dict(json.loads(path.read_text()))


def kind(text: str) -> str:
    """`equivalent`, `harmless`, `gap`, or that it is not explained yet."""
    word = text.partition(":")[0]
    return word if word in KINDS else NOT_YET


def render(
    mutants: Sequence[Made],
    reached: int,
    chosen: Sequence[Made],
    rows: Rows,
    explained: Mapping[str, str],
    cpu_s: int,
) -> str:
    there = [(made, row) for made in chosen if (row := rows.of(made)) is not None]
    commits = ", ".join(dict.fromkeys(row["commit"] for _, row in there)) or "no commit"
    counts = (
        f"{len(mutants):,} mutants were made; seeds run the statements of {reached:,} of them. Of "
        f"the sample of {len(chosen)}, {len(there)} have been run, at {commits}."
    )
    parts = [_HEAD.format(counts=counts, cpu=cpu_s), _score(there, explained)]
    parts.append(_grouped("room", ROOMS, there, lambda made: made.room))
    parts.append(_grouped("rule", RULES, there, lambda made: made.rule))
    parts += [_found_by(there), _unfound(there, explained), _not_reached(there, explained)]
    return "\n".join(part for part in parts if part)


def sentence(there: Iterable[Row]) -> str:
    """The score in a sentence."""
    rows = list(there)
    found = sum(row["verdict"] in FOUND for row in rows)
    return f"found: {_share(found, len(rows))}"


def _share(found: int, of: int) -> str:
    low, high = wilson(found, of)
    share = f"{100 * found / of:.1f} %" if of else "none"
    return f"{found} of {of}, {share} (95 % interval {100 * low:.1f} to {100 * high:.1f} %)"


def _score(there: Sequence[tuple[Made, Row]], explained: Mapping[str, str]) -> str:
    verdicts = Counter(row["verdict"] for _, row in there)
    found = sum(verdicts[name] for name in FOUND)
    reached = len(there) - verdicts["not reached"]
    kinds = Counter(
        kind(explained.get(made.id, "")) for made, row in there if row["verdict"] in UNFOUND
    )
    of_interest = reached - kinds["equivalent"] - kinds["harmless"]
    return f"""| | score |
|---|---|
| found, of all that were run | {_share(found, len(there))} |
| found, of those that a seed reaches | {_share(found, reached)} |
| the same, without the equivalent and the harmless | {_share(found, of_interest)} |

A rule was broken by {verdicts["found"]}; {verdicts["hangs"]} made a seed hang, which counts as
found. Not found: {verdicts["not reached"]} that no seed reaches, {verdicts["error"]} that ended in
an error of the harness itself, and {verdicts["survived"]} survivors. Of the last two:
{", ".join(f"{kinds[name]} {name}" for name in (*KINDS, NOT_YET))}.
"""


def _grouped(
    title: str,
    names: Sequence[str],
    there: Sequence[tuple[Made, Row]],
    of: Callable[[Made], str],
) -> str:
    text = f"| {title} | run | found | hangs | survived | error | not reached | found, of all |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for name in names:
        mine = Counter(row["verdict"] for made, row in there if of(made) == name)
        total = sum(mine.values())
        cells = [mine[v] for v in ("found", "hangs", "survived", "error", "not reached")]
        share = f"{100 * (mine['found'] + mine['hangs']) / total:.0f} %" if total else ""
        text += f"| {name} | {total} | " + " | ".join(map(str, cells)) + f" | {share} |\n"
    return text


def _found_by(there: Sequence[tuple[Made, Row]]) -> str:
    by = Counter(row["by"] for _, row in there if row["verdict"] == "found")
    return "Found by: " + ", ".join(f"{rule} {n}" for rule, n in by.most_common()) + ".\n"


def _unfound(there: Sequence[tuple[Made, Row]], explained: Mapping[str, str]) -> str:
    text = "## Not found, although a seed reaches them\n\n"
    text += "| mutant | change | runs | explanation |\n|---|---|---|---|\n"
    for made, row in sorted(there, key=lambda pair: (pair[0].file, pair[0].line)):
        if row["verdict"] not in UNFOUND:
            continue
        why = explained.get(made.id, NOT_YET)
        if row["verdict"] == "error":
            why += f" (error: {_cell(row['what'])})"
        place = f"{made.file}: `{made.function}`, line {made.line}, {made.rule}"
        text += f"| {place} | {change(made)} | {row['runs']} | {_cell(why)} |\n"
    return text


def _not_reached(there: Sequence[tuple[Made, Row]], explained: Mapping[str, str]) -> str:
    text = "## Not reached\n\n| mutant | change | explanation, or the unit test that finds it |\n"
    text += "|---|---|---|\n"
    for made, row in sorted(there, key=lambda pair: (pair[0].file, pair[0].line)):
        if row["verdict"] == "not reached":
            place = f"{made.file}: `{made.function}`, line {made.line}, {made.rule}"
            why = explained.get(made.id, NOT_YET).removeprefix(f"{TESTED}: ")
            text += f"| {place} | {change(made)} | {_cell(why)} |\n"
    return text


def change(made: Made) -> str:
    """The line, and what stands there instead."""
    text = " ".join(made.text.split())
    return f"`{_cell(made.source)}`: `{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
