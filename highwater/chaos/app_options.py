"""The options of `highwater chaos --app`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.processes.programs import Highwater, Program


@dataclass(slots=True)
class AppOptions:
    """The user's command, and the demands on it."""

    out: Path
    seed: int
    app: str
    input: str
    output: str
    match: str
    copies: int = 1
    group: str = "app"
    """A hint for the application, and the group of `coordinator of group` in default schedules."""
    exactly_once: bool = False
    ordered: bool = True
    errors: bool = True
    """Whether a schedule made from a seed may refuse what the application writes."""
    within_s: float = 60.0
    values: Sequence[Any] = ({},)
    duration_s: float = 60.0
    rate: float = 100.0
    schedule: list[Fault] | None = None
    keep: bool = False
    zookeeper: str = ""
    """The value of `--zookeeper`; empty: Java's if it can run here, else embedded."""
    program: Program = field(default_factory=Highwater)
    properties: dict[str, str] = field(default_factory=dict)
    again: str = ""
    """The command that repeats the run, for its report."""

    def contract(self) -> dict[str, Any]:
        must = ["exactly once" if self.exactly_once else "at least once"]
        fields = {"id": {"json": self.match}}
        ends = {"from": self.input, "to": self.output, "within_s": self.within_s}
        return {
            "isolation": "read_committed",
            "topics": {self.input: fields, self.output: fields},
            "pipelines": [{**ends, "must": must + ["in order per key"] * self.ordered}],
        }
