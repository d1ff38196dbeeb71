"""The outcome of one seed: what happened in it, and the rule that it broke, if any."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from highwater.simulation.coverage.taps import Reached
from highwater.simulation.faults.staged_faults import Fault
from highwater.simulation.rules.cluster_rules import Violation


@dataclass(slots=True)
class Outcome:
    """The outcome of one seed."""

    seed: int
    replay: str = ""
    vary: tuple[str, ...] = ()
    """The variations of its schedule (`variations`)."""
    digest: str = ""
    violation: Violation | None = None
    last_events: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """Faults that found nothing to break."""
    pairs: Counter[str] = field(default_factory=Counter)
    schedule: list[Fault] = field(default_factory=list)
    only: tuple[int, ...] | None = None
    operations: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    longest: Counter[str] = field(default_factory=Counter)
    """Kind -> the longest wait (s, virtual) while all was well (`rules/lateness`)."""
    expected_losses: int = 0
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    """Processor time, which other work on the machine hardly affects."""
    steps: int = 0
    events: int = 0
    checks: int = 0
    reached: Reached = field(default_factory=dict)
    """What the seed reached, by kind; only with coverage, and not in a run's log."""
    moments: dict[str, list[float]] = field(default_factory=dict)
    """Event of a partition -> some times at which it happened, in seconds of the schedule; only
    with coverage."""

    @property
    def ok(self) -> bool:
        return self.violation is None

    def as_dict(self) -> dict[str, Any]:
        """The outcome as a line of a run's log."""
        line = {name: getattr(self, name) for name in _LINE}
        return {**line, "violation": list(self.violation) if self.violation else None}

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> Outcome:
        outcome = cls(line["seed"])
        for name in _LINE:
            value = line[name]
            setattr(outcome, name, Counter(value) if isinstance(value, dict) else value)
        if line["violation"] is not None:
            outcome.violation = Violation(*line["violation"])
        return outcome


_LINE = (
    "seed", "replay", "digest", "seen", "faults", "skipped", "pairs", "operations", "errors",
    "longest", "expected_losses", "virtual_seconds", "real_seconds", "steps", "events", "checks",
    "last_events",
)  # fmt: skip
