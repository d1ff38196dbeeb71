"""A witness's view of a cluster: leaders, ISRs, controllers and brokers, as they come and go.

Two kinds see it: `znode_watch` by ZooKeeper's watches, `admin_watch` by the brokers' own answers.
Both may miss one of two quick changes, so the counts are lower bounds.  A witness works in a
thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from highwater.kafka.types import TopicPartition
from highwater.verdict.history import LineLog


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader of a partition and its ISR."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class WitnessError(Exception):
    """The cluster cannot be watched."""


def count_changes(old: PartitionState | None, new: PartitionState) -> list[str]:
    """The `seen` counters that this change of a partition's state increments."""
    if old is None:
        return []
    counted = []
    if new.leader != old.leader and new.leader >= 0:
        counted.append("leader_changes")
    if set(old.isr) - set(new.isr):
        counted.append("isr_shrinks")
    if set(new.isr) - set(old.isr):
        counted.append("isr_expands")
    return counted


class Witness:
    """A log, where there is one, gets a line for each change, and `history` each partition's
    state."""

    def __init__(self, log: LineLog | None = None) -> None:
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        """The partitions of the watched topics, with the brokers that they are assigned to."""
        self.history: list[tuple[int, TopicPartition, PartitionState]] = []
        self.controller: int | None = None
        self.controller_epoch = 0
        self.controller_epochs: list[int] = []
        """All that were seen, for R10; empty where the witness could not see one fall."""
        self.brokers: frozenset[int] = frozenset()
        self.seen: Counter[str] = Counter()
        self._log = log
        self._lock = threading.RLock()

    def start(self) -> None:
        """Raises WitnessError."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def watch_topic(self, topic: str) -> None:
        """Watches a topic, and its partitions as they come; until the topic is deleted."""
        raise NotImplementedError

    def watch_all_topics(self) -> None:
        """Watches the topics that there are, and those that come."""
        raise NotImplementedError

    async def catch_up(self, timeout_s: float = 0.5) -> None:
        """Watches the topics that were made just now, if the cluster answers in time."""

    def delete_controller(self) -> None:
        """Makes the controller resign; raises WitnessError where nothing can."""
        raise WitnessError("only ZooKeeper's controller can be deposed: kill it (how: kill)")

    def led_by(self, broker: int) -> dict[TopicPartition, PartitionState]:
        with self._lock:
            return {tp: s for tp, s in sorted(self.partitions.items()) if s.leader == broker}

    async def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits; gives whether the condition came true in time."""
        with trio.move_on_after(timeout_s):
            while not condition():
                await trio.sleep(0.02)
            return True
        return condition()

    def _note(self, tp: TopicPartition, new: PartitionState, **further: Any) -> None:
        """Takes a partition's state; `further` are fields of its line in the log."""
        with self._lock:
            old = self.partitions.get(tp)
            self.partitions[tp] = new
            if self._log is not None:
                self.history.append((time.monotonic_ns(), tp, new))
            self.seen.update(count_changes(old, new))
        moved = old is None or old.leader != new.leader
        self._write(
            "leader" if moved else "isr",
            topic=tp.topic,
            partition=tp.partition,
            leader=new.leader,
            leader_epoch=new.leader_epoch,
            isr=list(new.isr),
            **further,
        )

    def _write(self, what: str, **fields: Any) -> None:
        if self._log is not None:
            self._log.write(t_ns=time.monotonic_ns(), what=what, **fields)
