"""A run in one sentence: its success, the story of its first anomaly, or why it proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from highwater.verdict.verdict import Verdict

MENDING: Final = (
    "start",
    "resume",
    "heal",
    "release",
    "start_all",
    "go_on",
    "quicken",
    "wait",
    "bind",
)
"""Names in faults.jsonl that are no faults, or that end one."""
_PREDICATES = ("was ", "is ", "has ", "holds ", "stands ")
"""A check's detail begins with one of these where the record is its subject."""


def story(finding: Mapping[str, Any]) -> str:
    """`record 555 of orders-0 was acknowledged to app-p and never read, though 999 was`"""
    place = str(finding["topic"] or "")
    if place and finding["partition"] is not None:
        place += f"-{finding['partition']}"
    detail = str(finding["detail"])
    if not place:
        return detail
    if finding["offset"] is not None:
        subject = f"record {finding['offset']} of {place}"
    elif finding["value"] is not None:
        subject = f"record {str(finding['value'])[:60]} of {place}"
    else:
        subject = place
    return f"{subject} {detail}" if detail.startswith(_PREDICATES) else f"{subject}: {detail}"


def headline(verdict: Verdict, findings: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One sentence without a full stop; `findings` are each check's examples."""
    if verdict.verdict == "invalid":
        id_, outcome = next((i, o) for i, o in verdict.checks.items() if o.status == "violated")
        for finding in findings.get(id_, ()):
            if finding["kind"] == "violation":
                return story(finding)
        return _first(outcome.examples, f"{outcome.name} ({id_}) was violated")
    if verdict.verdict == "void":
        reasons = verdict.checks["L4"].examples
        more = len(reasons) - 1
        first = _first(reasons, "nothing was examined")
        return f"this run proves nothing: {first}" + (f" (and {more} more)" if more > 0 else "")
    if verdict.verdict == "unknown":
        return f"this run decides nothing: {_first(verdict.notes, 'the engines disagree')}"
    return _what_held(verdict)


def _what_held(verdict: Verdict) -> str:
    writes = verdict.operations["acked"]
    faults = sum(fault["name"] not in MENDING for fault in verdict.faults)
    lost = "nothing lost"
    if verdict.expected_losses:
        lost += f" but {counted(verdict.expected_losses, 'record')} of acks=1, as Kafka allows"
    told = [f"{counted(writes, 'write')} acknowledged", counted(faults, "fault"), lost]
    if verdict.longest_gap_ms is not None:
        told.append(f"longest gap {verdict.longest_gap_ms / 1000:.1f} s")
    return ", ".join(told)


def counted(count: int, what: str) -> str:
    """`1 violation`, `2 violations`"""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _first(lines: Iterable[str], otherwise: str) -> str:
    return next(iter(lines), otherwise)
