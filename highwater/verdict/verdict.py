"""A run's verdict, as verdict.json holds it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Word = Literal["valid", "invalid", "unknown", "void"]
EXIT_CODES: dict[str, int] = {"valid": 0, "invalid": 1, "void": 2, "unknown": 2}


@dataclass(slots=True)
class CheckOutcome:
    name: str
    status: Literal["passed", "idle", "violated", "void", "unknown"]
    """idle: there was nothing to examine, and none was required."""
    examined: int
    violations: int
    expected: int = 0
    """The number of findings that the topic's promise allows (acks=1)."""
    counted: int = 0
    """The number of findings that are no fault (duplicates without idempotence)."""
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Verdict:
    """The content of verdict.json."""

    verdict: Word
    seed: int | None
    runtime: str | None
    checks: dict[str, CheckOutcome]
    seen: dict[str, int]
    expected_losses: int
    operations: dict[str, int]
    faults: list[dict[str, Any]]
    notes: list[str]
    """The reasons and the basis of the verdict: one line each."""
    headline: str = ""
    """The run in one sentence."""
    longest_gap_ms: int | None = None
    """The longest time between two binding acknowledgements (acks=all)."""
    longest_while_well_ms: int | None = None
    """The longest time from a write to its binding acknowledgement before the first fault, and from
    eight seconds after the last fault on."""
    engine: str = "duckdb"
    spark: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    def write(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(self.as_json(), encoding="utf-8")
        temporary.replace(path)
