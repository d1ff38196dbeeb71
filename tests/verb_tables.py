"""The tables of verbs on the pages: `python -m tests.verb_tables` makes them from the rows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from highwater.cluster.faults.verb_row import Kind, Verb
from highwater.cluster.faults.verb_table import FAULTS, GROUPS, IN_CONTAINERS, VERBS, fields_of
from highwater.pytest_plugin import Chaos

DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(
    r"(<!-- verbs: (\w+), by python -m tests.verb_tables -->\n).*?(<!-- end -->)", re.S
)
COLUMNS = {
    "Highwater": (),
    "`apache:`, ZooKeeper": (Kind.DOORLESS, Kind.FOREIGN),
    "`apache:`, KRaft": (Kind.DOORLESS, Kind.FOREIGN, Kind.KRAFT),
    "`HOST:PORT`, `compose:FILE`": (*IN_CONTAINERS, Kind.REMOTE),
}


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(titles)
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _takes(verb: Verb) -> str:
    """Its target and fields; those that may be left out in brackets."""
    target = [] if verb.target is None else [(verb.target.name, verb.target.required)]
    takes = target + [(f"`{field.name}`", field.required) for field in verb.fields]
    return ", ".join(name if required else f"[{name}]" for name, required in takes)


def actions(verbs: Mapping[str, Verb]) -> str:
    rows = ((f"`{n}`", _takes(verb), verb.does, verb.seen) for n, verb in verbs.items())
    return _table(("name", "takes", "action", "effect that it waits for"), rows)


def fields(verbs: Mapping[str, Verb]) -> str:
    rows = (
        (f"`{name}`", _names(of), field.text)
        for name, meanings in fields_of(verbs).items()
        for field, of in meanings.items()
    )
    return _table(("field", "of", "meaning"), rows)


def calls(verbs: Mapping[str, Verb]) -> str:
    """The methods of the fixture `chaos`, as the verbs are grouped."""
    groups = {
        group: [row.name + _signature(row.name) for row in rows if row.name in FAULTS]
        for group, rows in GROUPS.items()
    }
    return _table(("", ""), ((group, _names(of)) for group, of in groups.items() if of))


def _signature(name: str) -> str:
    signature = inspect.signature(getattr(Chaos, name))
    bare = [p.replace(annotation=p.empty) for p in list(signature.parameters.values())[1:]]
    return str(inspect.Signature(bare))


def targets(verbs: Mapping[str, Verb]) -> str:
    """Which verbs each kind of target can have; those alike in one row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, verb in verbs.items():
        if verb.only != "schedules":
            cells = tuple(_can(verb, *kinds) for kinds in COLUMNS.values())
            alike.setdefault(cells, []).append(name)
    return _table(("", *COLUMNS), ((_names(of), *cells) for cells, of in alike.items()))


def _can(verb: Verb, *kinds: Kind) -> str:
    if not verb.cannot.keys().isdisjoint(kinds):
        return "no"
    return "by your commands, or Docker's" if verb.commands and Kind.REMOTE in kinds else "yes"


TABLES = {"actions": actions, "fields": fields, "calls": calls, "targets": targets}
PAGES = tuple(DOCS / name for name in ("faults.md", "pytest.md", "targets.md"))


def render(page: str, verbs: Mapping[str, Verb] = VERBS) -> str:
    """The page's text with its tables made anew."""
    return MARKED.sub(lambda mark: mark[1] + TABLES[mark[2]](verbs) + mark[3], page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(path.read_text()))
