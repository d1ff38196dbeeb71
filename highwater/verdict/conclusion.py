"""The verdict on a run from the findings of one engine, or of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from highwater.verdict.decision import decide
from highwater.verdict.results import Results
from highwater.verdict.verdict import Verdict

KEPT: Final = ("version", "master", "ingest", "ingest_error", "seconds", "phases")
"""The fields of Spark's results that go into verdict.json."""


def conclude(
    found: Results,
    info: dict[str, Any],
    faults: Sequence[dict[str, Any]],
    *,
    torn_read: bool,
    other: Results | None = None,
    notes: Sequence[str] = (),
) -> Verdict:
    """The verdict by `found`; unknown if `other` differs on the same tables.

    `torn_read`: the independent reader was interrupted, so it has left no full read.
    """
    consumed = found["facts"]["consumed"]
    verdict = decide(
        found,
        info,
        faults,
        final_read=bool(info.get("final_read")),
        read_by_others=consumed > 0 and not torn_read,
        disagreements=compare(found, other) if other is not None else (),
    )
    verdict.notes += [*notes, *_who_read(found, consumed)]
    if found["engine"] == "spark":
        verdict.spark = {name: found.get(name) for name in KEPT}
    return verdict


def _who_read(found: Results, consumed: int) -> list[str]:
    notes = []
    if problem := found.get("ingest_error"):
        notes.append(f"Spark did not read the topics itself: {problem}")
    if consumed:
        when = "" if found.get("ingest") else " in an earlier session"
        notes.append(f"an independent client read {consumed} records through Spark{when}")
    else:
        notes.append(
            "no independent reader: the checks rest on what the history's own clients read"
        )
    return notes


def compare(one: Results, other: Results) -> list[str]:
    """The differences between two engines on the same tables: one line each."""
    lines = []
    for id_ in sorted(one["checks"].keys() | other["checks"].keys()):
        a, b = dict(one["checks"].get(id_, {})), dict(other["checks"].get(id_, {}))
        for what in ("examined", "found", "examples"):
            this, that = a.get(what), b.get(what)
            if this != that:
                told = f"{id_} {what}: {one['engine']} {this}, {other['engine']} {that}"
                lines.append(told[:300])
    if (this := one.get("claims")) != (that := other.get("claims")):
        lines.append(f"claims: {one['engine']} {this}, {other['engine']} {that}"[:300])
    return lines
