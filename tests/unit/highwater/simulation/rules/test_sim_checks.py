"""C13 by SQL over a simulated run's history: a stale end counts by ZooKeeper's tree."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules import sim_checks
from highwater.simulation.sim_history import History, SendLines

TP = TopicPartition("safe", 0)
SECOND = 1_000_000_000


class Course:
    """Ten records, known by second 1; an end offset is asked for in second 3."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.history = History(now=lambda: self.seconds)
        self.witnessed: list[dict[str, Any]] = []
        self.elected(0, 1)
        for process, phase in (("consumer", "run"), ("reader", "final")):
            self.history.line(process, "assign", "ok", TP, offset=0, phase=phase)
        for n in range(10):
            lines = SendLines(
                self.history, "p", TP, [b"p.%d" % n], acks=-1, idempotent=True, expect_loss=False
            )
            self.seconds += 0.05
            lines.ok(n, 1)
        self.seconds = 1.0
        self.read("consumer", "run")

    def elected(self, epoch: int, leader: int) -> None:
        at = int(self.seconds * SECOND)
        self.witnessed.append(
            {
                "t_ns": at, "written_ns": at, "what": "state", "topic": TP.topic,
                "partition": TP.partition, "leader": leader, "leader_epoch": epoch,
            }
        )  # fmt: skip

    def read(self, process: str, phase: str) -> None:
        op = self.history.operation()
        for n in range(10):
            self.history.line(
                process, "poll", "ok", TP, op=op, poll_id=op, n=10, offset=n, leader_epoch=0,
                value=f"p.{n}", phase=phase,
            )  # fmt: skip

    def end_offset(self, answer: int, epoch: int) -> None:
        self.seconds = 3.0
        common = {"op": self.history.operation(), "which": "latest", "phase": "run"}
        self.history.line("prober", "list_offsets", "invoke", TP, **common)
        self.seconds += 0.01
        self.history.line(
            "prober", "list_offsets", "ok", TP, offset=answer, leader_epoch=epoch, **common
        )

    def judged(self) -> list[str]:
        self.seconds = 5.0
        self.read("reader", "final")
        topics = [sim_checks.Topic(TP.topic, False, False)]
        return [f.check for f in sim_checks.judge(self.history.lines, topics, self.witnessed)]


@pytest.mark.parametrize(
    ("newest", "answer", "answered_in", "findings"),
    [
        (0, 10, 0, []),
        (0, 9, 0, ["C13"]),
        (1, 9, 0, []),  # replaced before it was asked: it answers for its own epoch
        (1, 9, 1, ["C13"]),
    ],
)
def test_a_stale_end_offset(
    newest: int, answer: int, answered_in: int, findings: list[str]
) -> None:
    course = Course()
    if newest:
        course.seconds = 2.0
        course.elected(newest, 2)
    course.end_offset(answer, answered_in)
    assert course.judged() == findings


def test_who_was_replaced_only_afterwards_is_held_to_it() -> None:
    course = Course()
    course.end_offset(9, 0)
    course.seconds = 4.0
    course.elected(1, 2)
    assert course.judged() == ["C13"]
