"""A finding of the doctor: what would happen, by which setting, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Effect(StrEnum):
    """The kinds of findings, from the worst to a mere remark."""

    LOSES = "loses"
    REPEATS = "repeats"
    REORDERS = "reorders"
    UNCOMMITTED = "reads aborted"
    REFUSED = "does not start"
    UNREACHABLE = "cannot connect"
    UNUSABLE = "cannot be used"
    REMARK = "remark"


@dataclass(frozen=True, slots=True)
class Finding:
    effect: Effect
    what: str
    """The setting with its value, or the address."""
    why: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, the worst first; otherwise in the given order."""
    return sorted(findings, key=lambda finding: list(Effect).index(finding.effect))


def headline(findings: Sequence[Finding]) -> str:
    """One sentence: "this client can lose and reorder records"."""
    effects = {finding.effect for finding in findings}
    verbs = {
        Effect.LOSES: "lose",
        Effect.REPEATS: "repeat",
        Effect.REORDERS: "reorder",
    }
    can = [verb for effect, verb in verbs.items() if effect in effects]
    parts = []
    if can:
        parts.append(
            f"can {' and '.join([', '.join(can[:-1]), can[-1]] if can[1:] else can)} records"
        )
    if Effect.UNCOMMITTED in effects:
        parts.append("reads records of aborted transactions")
    if Effect.REFUSED in effects:
        parts.append("does not start with these settings")
    if Effect.UNREACHABLE in effects:
        parts.append("cannot reach the cluster")
    if Effect.UNUSABLE in effects:
        parts.append("names a topic that cannot be used")
    if not parts:
        return "nothing was found that loses, repeats or reorders records"
    return f"this client {_and(parts)}"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def serious(findings: Sequence[Finding]) -> bool:
    return any(finding.effect is not Effect.REMARK for finding in findings)


class Outcome:
    """The findings about clients, and the headline and exit code that follow from them."""

    __slots__ = ()

    def all_findings(self) -> Iterable[Finding]:
        """All findings, in any order."""
        raise NotImplementedError

    @property
    def findings(self) -> list[Finding]:
        return in_order(self.all_findings())

    @property
    def headline(self) -> str:
        return headline(self.findings)

    @property
    def exit_code(self) -> int:
        return 1 if serious(self.findings) else 0
