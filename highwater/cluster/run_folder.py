"""The contents of the folder that a run leaves.

run.json        `RunInfo` (seed, runtime, topics, counters of the witnesses); it exists from the
                beginning, and says whether the run came to its end (`finished`)
history.jsonl   the clients' calls and answers: `highwater.verdict.history`
faults.jsonl    one line a fault that fired: {"name", "target", "t", "t_ns", "params", "effect",
                "error"}; `t` is seconds since the workload began; `effect` is the visible effect,
                null where there was none (the run is then void: L4).  The verbs that end a
                fault (start, resume, heal, release) are lines of their own.
witness.jsonl   ZooKeeper as a watcher sees it: {"t_ns", "what": "leader" | "isr" | "controller" |
                "broker", ...}
cluster/        from each broker's disk, after the run:
  records.jsonl   {"broker", "topic", "partition", "offset", "leader_epoch", "key", "value",
                  "producer_id", "producer_epoch", "sequence"}: every record of every replica (C5)
  epochs.jsonl    {"broker", "topic", "partition", "epoch", "start_offset"}: leader-epoch-checkpoint
  processes.jsonl {"t_ns", "member", "state": "up" | "paused" | "down"}: the processes as
                  the harness started, stopped and saw them
  sizes.jsonl     {"t_ns", "broker", "topic", "partition", "segment", "size", "was"}: a log
                  became shorter
  broker-N/       its output and its server.properties
consumed/       *.parquet of an independent consumer (Spark), where there was one
app.json, traffic.jsonl, contract.json, app.log, app-2.log
                of `chaos --app` alone: what the application is, what was fed and came out
                (`chaos.app_traffic`), what it must keep, and what its copies printed
verdict.json    the outcome: `highwater.verdict`
report.html
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class TopicInfo:
    name: str
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    expect_loss: bool = False
    """True for the acks=1 topic: acknowledged records may, and must, be lost there."""


@dataclass(slots=True)
class RunInfo:
    """run.json."""

    run: str
    seed: int
    runtime: str
    duration_s: float
    target: str = ""
    """The target of the faults, where it was not Highwater."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Faults that this target cannot suffer, and effects that it does not show, with the reason."""
    security: str = "plaintext"
    """What the workload's clients spoke."""
    zookeeper: str = ""
    """Which one the brokers had: java, embedded or elsewhere; empty: none, or not known."""
    started: str = ""
    """Wall clock, ISO 8601, for people; comparisons use t_ns."""
    again: str = ""
    """The command that repeats the run."""
    bootstrap: str = ""
    topics: list[TopicInfo] = field(default_factory=list)
    brokers: list[int] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    """Counters of the witnesses: not_leader, leader_changes, isr_shrinks, isr_expands,
    truncated_bytes, controller_moves, hw_below_leo_at_leader_death."""
    cluster_checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """R2, R5, ...: {"name", "examined", "violations", "examples"}, from the witnesses."""
    planned_faults: int = 0
    loss_arranged: bool = True
    """Whether a fault was to lose acks=1 records: then a loss must be seen (L4)."""
    healed: bool = False
    """Whether the cluster became whole again (L2) before the final read."""
    problems: list[str] = field(default_factory=list)
    """Problems beside the checks: a process that died unasked, a partition that stayed
    under-replicated, a final read that did not reach the end."""
    final_read: bool = False
    """Whether the final full read reached the end offsets of all partitions."""
    finished: bool = False
    """Whether the run came to its end: the final read was over, and the brokers' segments were
    read.  An interrupted run (Ctrl-C, a killed harness) lacks data that the checks need."""
    versions: dict[str, str] = field(default_factory=dict)


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def faults(self) -> Path:
        return self.path / "faults.jsonl"

    @property
    def witness(self) -> Path:
        return self.path / "witness.jsonl"

    @property
    def cluster(self) -> Path:
        return self.path / "cluster"

    @property
    def consumed(self) -> Path:
        return self.path / "consumed"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def create(self) -> None:
        """Makes the folder; refuses one that is not empty: all in it counts as the run's."""
        self.path.mkdir(parents=True, exist_ok=True)
        if any(self.path.iterdir()):
            raise FileExistsError(f"{self.path} is not empty: name another folder with --out")
        self.cluster.mkdir(exist_ok=True)

    def write_info(self, info: RunInfo) -> None:
        temporary = self.path / "run.json.tmp"
        temporary.write_text(json.dumps(asdict(info), indent=1) + "\n")
        os.replace(temporary, self.path / "run.json")

    def read_info(self) -> RunInfo:
        raw: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        topics = [TopicInfo(**t) for t in raw.pop("topics", [])]
        known = {k: v for k, v in raw.items() if k in RunInfo.__slots__}
        return RunInfo(topics=topics, **known)
