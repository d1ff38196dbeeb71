"""The alarm of a rule that is broken."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

MOST_OF_A_RULE: Final = 20
"""How many alarms of one rule and topic are reported; later ones say nothing new."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One broken promise; `rule` is a name of docs/rules.md."""

    rule: str
    topic: str | None
    detail: str
    partition: int | None = None
    offset: int | None = None
    process: str | None = None
    t_ns: int | None = None
    """The history's clock at the line that broke it."""
    t_ms: int | None = None
    """The wall clock of the record that broke it, where no line of the history did."""

    @property
    def id(self) -> str:
        """An id that stays the same if the alarm is computed again."""
        return f"{self.rule}|{self.topic}|{self.partition}|{self.offset}|{self.detail}"

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, **{k: v for k, v in asdict(self).items() if v is not None}}


class Told:
    """The alarms so far, at most MOST_OF_A_RULE of each rule."""

    def __init__(self, counts: dict[str, int] | None = None) -> None:
        self.counts = counts or {}
        self.alarms: list[Alarm] = []

    def tell(self, alarm: Alarm) -> None:
        count = self.counts[alarm.rule] = self.counts.get(alarm.rule, 0) + 1
        if count <= MOST_OF_A_RULE:
            self.alarms.append(alarm)

    def take(self) -> list[Alarm]:
        alarms, self.alarms = self.alarms, []
        return alarms
