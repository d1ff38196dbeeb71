"""All rules of a contract on topics that are being written, and their state on disk.

There are two times.  `now_ms` is the wall clock.  The *clock* says up to which time all topics were
read: the start of a batch that took everything there was, or, behind a backlog, the least of the
newest times of the partitions that are behind (a watermark).  Everything that waits for its time
waits by the clock, so that a backlog or a restart makes nothing late; and what is older than the
horizon by the clock is forgotten.

The stream delivers each batch at least once.  `batch` is the last one in the state, and both are in
one file, so that a batch that comes again changes nothing.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.contracts.watching.pipeline_rules import PipelineRules
from highwater.verdict.contracts.watching.row import Row
from highwater.verdict.contracts.watching.sum_rules import SumRules
from highwater.verdict.contracts.watching.topic_rules import TopicRules
from highwater.verdict.watching.alarm import Alarm
from highwater.verdict.watching.machines import StateDamaged

VERSION: Final = 1
Place = tuple[str, int]
"""(topic, partition)"""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long to wait for a late record, and how long to remember records."""

    unseen_s: float = 60.0
    horizon_s: float = 60.0


class ContractMachine:
    def __init__(self, contract: Contract, waits: Waits) -> None:
        self.contract = contract
        both = (int(waits.unseen_s * 1000), int(waits.horizon_s * 1000))
        self.topics = {name: TopicRules(topic, *both) for name, topic in contract.topics.items()}
        self.pipelines = [
            PipelineRules(pipeline, contract.topics[pipeline.source].compacted, *both)
            for pipeline in contract.pipelines
        ]
        self.sums = [SumRules(n, sums, both[0]) for n, sums in enumerate(contract.sums, 1)]
        self.rules: list[Any] = [*self.topics.values(), *self.pipelines, *self.sums]
        self.batch = -1
        self.records = 0
        self.clock_ms = 0
        self.newest: dict[Place, int] = {}
        """The newest time of a record in each partition."""
        self.highest: dict[Place, int] = {}
        """The last offset of each partition that was taken."""

    def take(self, rows: Iterable[Row], now_ms: int) -> None:
        """Takes records of any partitions; each partition's later ones must come in later calls."""
        for row in sorted(rows, key=lambda row: row[:3]):
            place = (row.topic, row.partition)
            if row.offset <= self.highest.get(place, -1):
                continue  # it was read before
            first = place not in self.highest
            self.highest[place] = row.offset
            self.records += 1
            stamp = row.timestamp_ms
            t_ms = now_ms if stamp is None or stamp < 0 else min(stamp, now_ms)
            self.newest[place] = max(t_ms, self.newest.get(place, 0))
            at_ms = max(t_ms, self.clock_ms)
            self.topics[row.topic].record(row, at_ms)
            for flow in self.pipelines:
                if row.topic == flow.pipeline.source:
                    flow.trimmed = flow.trimmed or (first and row.offset > 0)
                    flow.input(row, at_ms)
                if row.topic == flow.pipeline.target:
                    flow.output(row, at_ms)
            for sums in self.sums:
                if row.topic in sums.sums.topics:
                    sums.record(row, at_ms)

    def advance(self, now_ms: int, behind: Iterable[Place]) -> None:
        """Raises the alarms whose time has come.

        All records that existed at `now_ms` must have been taken, except in partitions that are
        `behind`.
        """
        clock_ms = min((self.newest.get(place, 0) for place in behind), default=now_ms)
        self.clock_ms = max(self.clock_ms, min(clock_ms, now_ms))
        for rules in self.rules:
            rules.due(self.clock_ms)

    def forget(self) -> None:
        for topic in self.topics.values():
            topic.forget(self.clock_ms)
        for pipeline in self.pipelines:
            pipeline.forget(self.clock_ms)

    def alarms(self) -> list[Alarm]:
        """The alarms since the last call."""
        return [alarm for rules in self.rules for alarm in rules.told.take()]

    def save(self, path: Path) -> int:
        """Replaces the state on disk, whole or not at all; returns its size in bytes."""
        counts = (self.batch, self.records, self.clock_ms, self.newest, self.highest)
        states = [rules.state() for rules in self.rules]
        data = pickle.dumps((VERSION, _fingerprint(self.contract), counts, states), protocol=5)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(data)
        os.replace(temporary, path)
        return len(data)

    def load(self, path: Path) -> None:
        """Reads what `save` wrote; does nothing if there is no such file.  Raises StateDamaged."""
        if not path.exists():
            return
        try:
            version, of, counts, states = pickle.loads(path.read_bytes())
            if version != VERSION:
                raise ValueError(f"it is of version {version}")
            if of != _fingerprint(self.contract):
                raise ValueError("it is of another contract")
            self.batch, self.records, self.clock_ms, self.newest, self.highest = counts
            for rules, state in zip(self.rules, states, strict=True):
                rules.restore(state)
        except (ValueError, TypeError, EOFError, AttributeError, pickle.UnpicklingError) as error:
            raise StateDamaged(
                f"{path} cannot be used: {error}: name another --state, or remove {path.parent}"
            ) from error


def _fingerprint(contract: Contract) -> str:
    """A digest of the contract's demands, independent of the place of its file."""
    topics = {
        name: (sorted(t.looked_for.items(), key=str), t.must, t.per, t.compacted)
        for name, t in contract.topics.items()
    }
    demanded = (contract.isolation, topics, contract.pipelines, contract.sums)
    return sha256(repr(demanded).encode()).hexdigest()
