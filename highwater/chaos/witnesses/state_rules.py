"""The rules of the cluster's own state, R2, R5, R7, R8 and R10, checked on the witnesses' data.

R2   ZooKeeper's leader is in ZooKeeper's ISR, or is -1.
R5   after re-sync all replicas of a partition hold equal records at equal offsets.
R7   leader epochs never fall, and one epoch has one leader.
R8   in an epoch file, epochs and start offsets strictly increase.
R10  the controller epoch never falls.

The ZooKeeper witness may miss one of two quick changes, so R7 and R10 may overlook a violation that
they would find in simulation; what they find is real.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from highwater.cluster.faults.witness import PartitionState
from highwater.kafka.types import TopicPartition

MAX_EXAMPLES = 5
Seen = Iterable[tuple[int, TopicPartition, PartitionState]]


@dataclass(slots=True)
class Found:
    """The outcome of one rule, as run.json holds it."""

    name: str
    examined: int = 0
    violations: int = 0
    examples: list[str] = field(default_factory=list)

    def broken(self, text: str) -> None:
        self.violations += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(text)


def leader_in_isr(seen: Seen) -> Found:
    found = Found("leader in ISR")
    for _, tp, state in seen:
        found.examined += 1
        if state.leader >= 0 and state.leader not in state.isr:
            found.broken(f"{tp}: leader {state.leader} of epoch {state.leader_epoch} is not in"
                         f" the ISR {list(state.isr)}")  # fmt: skip
    return found


def epochs_and_leaders(seen: Seen) -> Found:
    found = Found("one leader per epoch")
    highest: dict[TopicPartition, int] = {}
    leaders: dict[tuple[TopicPartition, int], int] = {}
    for _, tp, state in seen:
        found.examined += 1
        before = highest.get(tp, -1)
        if state.leader_epoch < before:
            found.broken(f"{tp}: leader epoch {before} was followed by {state.leader_epoch}")
        highest[tp] = max(before, state.leader_epoch)
        if state.leader < 0:
            continue
        other = leaders.setdefault((tp, state.leader_epoch), state.leader)
        if other != state.leader:
            found.broken(f"{tp}: epoch {state.leader_epoch} had leaders {other} and {state.leader}")
    return found


def logs_match(replicas: Mapping[TopicPartition, Mapping[int, Mapping[int, Any]]]) -> Found:
    """`replicas`: for each partition, for each broker, the record at each offset."""
    found = Found("log matching")
    for tp, logs in sorted(replicas.items()):
        offsets = sorted(set().union(*logs.values()))
        for offset in offsets:
            found.examined += 1
            held = {number: log.get(offset) for number, log in sorted(logs.items())}
            if len({repr(record) for record in held.values()}) > 1:
                found.broken(f"{tp} offset {offset}: {_differ(held)}")
    return found


def _differ(held: Mapping[int, Any]) -> str:
    return ", ".join(f"broker-{n} {'nothing' if r is None else r}" for n, r in held.items())


def epoch_files(entries: Mapping[tuple[int, TopicPartition], list[tuple[int, int]]]) -> Found:
    found = Found("epoch cache")
    for (number, tp), file in sorted(entries.items()):
        for (epoch, start), (later, later_start) in pairwise(file):
            if later <= epoch or later_start <= start:
                found.broken(
                    f"broker-{number} {tp}: ({epoch}, {start}) before ({later}, {later_start})"
                )
        found.examined += len(file)
    return found


def controller_epochs(epochs: Iterable[int]) -> Found:
    found = Found("controller epoch")
    highest = -1
    for epoch in epochs:
        found.examined += 1
        if epoch < highest:
            found.broken(f"controller epoch {highest} was followed by {epoch}")
        highest = max(highest, epoch)
    return found
