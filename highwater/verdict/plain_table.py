"""The verdict as text.  A terminal gets the same cells in colours (report.colour_table); Spark's
job prints them plain, because it has the standard library alone.

The table fits 80 columns: checks that had nothing to examine share one line below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Final, Protocol

from highwater.verdict.headline import counted
from highwater.verdict.verdict import CheckOutcome, Verdict, Word

HEADERS: Final = ("check", "name", "examined", "found", "outcome")
NUMBERS: Final = frozenset(("examined",))
"""The columns that are aligned on the right."""
WIDTH: Final = 80
_WORDS: Final = {
    "not_leader": "NOT_LEADER answers",
    "hw_below_leo_at_leader_death": "leader deaths with HW below LEO",
}


_MEANINGS: Final = {
    "expected": "allowed by Kafka: records with acks=1 that went with the one broker that had"
    " them. C4 counts each of them, other checks what else shows of them",
    "counted": "told, and no rule forbids it",
}


class Judged(Protocol):
    """A verdict on a run, or on a contract."""

    @property
    def verdict(self) -> Word: ...
    @property
    def engine(self) -> str: ...
    @property
    def checks(self) -> Mapping[str, CheckOutcome]: ...


def title(verdict: Judged) -> tuple[str, str]:
    """The verdict in one word, and the engine that gave it."""
    return verdict.verdict, f"(checked by {verdict.engine})"


def rows(verdict: Judged) -> list[tuple[str, ...]]:
    """A row of cells, in the order of HEADERS, for each check that was not idle."""
    return [
        (id_, check.name, f"{check.examined:,}", _found(check), check.status)
        for id_, check in verdict.checks.items()
        if check.status != "idle"
    ]


def _found(check: CheckOutcome) -> str:
    """`1 violation, 12 expected`; "-" for nothing."""
    parts = [counted(check.violations, "violation")] if check.violations else []
    parts += [f"{check.expected:,} expected"] if check.expected else []
    parts += [f"{check.counted:,} counted"] if check.counted else []
    return ", ".join(parts) or "-"


def lines(verdict: Judged) -> list[str]:
    """Title, headers and rows in columns, without colours."""
    cells = [HEADERS, *rows(verdict)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADERS))]
    told = ["  ".join(title(verdict))]
    for row in cells:
        padded = (
            cell.rjust(width) if header in NUMBERS else cell.ljust(width)
            for cell, width, header in zip(row, widths, HEADERS, strict=True)
        )
        told.append("  ".join(padded).rstrip())
    return told + word_lines(verdict)


def word_lines(verdict: Judged) -> list[str]:
    """Explains the words that the table uses, and lists the checks that had nothing to examine and
    did not need to.
    """
    checks = verdict.checks
    told = []
    for word, said in _MEANINGS.items() if "C4" in checks else ():
        if any(getattr(check, word) for check in checks.values() if check.status != "idle"):
            told += _wrapped(word, said)
    idle = [id_ for id_, check in checks.items() if check.status == "idle"]
    return told + (_wrapped("idle", ", ".join(idle)) if idle else [])


def seen_lines(verdict: Verdict) -> list[str]:
    """The events that the witnesses and the clients saw in the run."""
    told = (f"{n:,} {_word(name)}" for name, n in verdict.seen.items() if n)
    return _wrapped("seen", ", ".join(told) or "none of the events that a fault causes")


def _word(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " ").replace("isr", "ISR"))


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{label:<10}", subsequent_indent=" " * 10)


def example_lines(verdict: Judged, limit: int = 3) -> list[str]:
    """`C4: orders-0 offset 17, ...` for the checks that did not pass."""
    return [
        f"{id_}: {example}"
        for id_, check in verdict.checks.items()
        if check.status not in ("passed", "idle")
        for example in check.examples[:limit]
    ]
