"""What the clients of a simulated run know, in dicts and as lines of a history.

The dicts are judged during the run and right after it.  The lines have the form of
`highwater.verdict.history` (virtual time in place of the machine's clock), so that the SQL checks
can judge a simulated run as they judge a real one (`sim_checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from highwater.kafka.types import TopicPartition
from highwater.verdict.history_schema import require_columns


@dataclass(slots=True)
class Sent:
    """The outcome of one value."""

    tp: TopicPartition
    acks: int
    idempotent: bool
    offset: int | None = None
    failed: bool = False
    """Whether it was certainly not appended."""
    fenced: bool = False
    """Whether it was sent in an older producer epoch than one acknowledged before."""
    tries: int = 0
    losses: int = 0
    """How many of the partition's losses were known, and over, when it was acknowledged."""


@dataclass
class History:
    """Everything that the clients know."""

    now: Callable[[], float] = lambda: 0.0
    sent: dict[bytes, Sent] = field(default_factory=dict)
    acked: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    read: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    read_losses: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    """(partition, offset) -> as `Sent.losses`, when a record was first read there."""
    final: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    known_end: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset after the highest one acknowledged (acks=all) or read."""
    known_losses: dict[TopicPartition, int] = field(default_factory=dict)
    """How many losses of the partition were known when `known_end` was noted."""
    count: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lines: list[dict[str, Any]] = field(default_factory=list)
    operations: int = 0

    def line(self, process: str, f: str, type_: str, tp: TopicPartition, **fields: Any) -> None:
        line = {
            "index": len(self.lines),
            "process": process,
            "f": f,
            "type": type_,
            "topic": tp.topic,
            "partition": tp.partition,
            "t_ns": int(self.now() * 1e9),
            **fields,
        }
        require_columns(line)
        self.lines.append(line)

    def knows(self, tp: TopicPartition, offset: int, losses: int, *, anew: bool) -> None:
        """Notes a record that was acknowledged or read.  `anew`: what was known before is lost."""
        if anew or offset + 1 > self.known_end.get(tp, 0):
            self.known_end[tp], self.known_losses[tp] = offset + 1, losses

    def operation(self) -> int:
        self.operations += 1
        return self.operations


class SendLines:
    """The lines of one send operation: a batch of values, attempted until its outcome is known."""

    def __init__(
        self,
        history: History,
        process: str,
        tp: TopicPartition,
        values: list[bytes],
        *,
        acks: int,
        idempotent: bool,
        expect_loss: bool,
        in_flight: int = 1,
    ) -> None:
        self.history = history
        self.values = values
        self._where = (process, tp)
        self._common = {
            "op": history.operation(),
            "phase": "run",
            "acks": acks,
            "idempotent": idempotent,
            "max_in_flight": in_flight,
            "expect_loss": expect_loss,
        }
        for value in values:
            self._line("invoke", value)

    def _line(self, type_: str, value: bytes, **fields: Any) -> None:
        process, tp = self._where
        text = value.decode()
        self.history.line(process, "send", type_, tp, value=text, **self._common, **fields)

    def ok(self, base: int, attempts: int) -> None:
        for n, value in enumerate(self.values):
            offset = base + n if base >= 0 else -1
            self._line("ok", value, offset=offset, attempt=attempts)

    def fail(self, error: str) -> None:
        for value in self.values:
            self._line("fail", value, error=error, attempt=1)

    def info(self, error: str, attempts: int) -> None:
        for value in self.values:
            self._line("info", value, error=error, attempt=attempts)
