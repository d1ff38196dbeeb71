"""Planted histories: small runs whose only fault is known, to judge the checks by.

Each plant starts from a sound run of one topic of its own (producers, consumers, a full read at the
end) and bends one thing.  Its expected result is written beside it: the checks whose *violations*
it plants, and those that must *set findings apart* (expected losses, numbers).  Where one
definition implies another (an acknowledged record that a reader went past, C3, is also unseen, C4),
both are named.  A clean plant names no check, and holds events that a careless check would flag:
unknown outcomes, holes, retries, overlapping sends.

The plants share no topic and no process, so all of them together are one history, which Spark
checks in one session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

Line = dict[str, Any]
FINAL_NS = 1_000_000
"""A plant's own clock: the full read at the end starts there."""


@dataclass(slots=True)
class Story:
    """One topic's run, told line by line; `now` is the clock, and every line moves it."""

    topic: str
    expect_loss: bool = False
    unclean: bool = False
    now: int = 0
    lines: list[Line] = field(default_factory=list)
    log: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """partition -> offset -> (key, value): the topic's contents at the end."""
    consumed: list[Line] = field(default_factory=list)
    segments: list[Line] = field(default_factory=list)
    faults: list[Line] = field(default_factory=list)
    witnessed: list[Line] = field(default_factory=list)
    operations: int = 0

    def line(self, process: str, f: str, type_: str, **fields: Any) -> None:
        self.now += 10
        line = {
            "process": f"{self.topic}/{process}",
            "client": "planted",
            "f": f,
            "type": type_,
            "t_ns": fields.pop("t_ns", self.now),
            "topic": self.topic,
            "phase": "run",
            "expect_loss": self.expect_loss,
            **fields,
        }
        self.lines.append({k: v for k, v in line.items() if v is not None})

    def operation(self) -> int:
        self.operations += 1
        return self.operations

    def invoke(self, process: str, value: str, partition: int = 0, **fields: Any) -> Line:
        """The first phase of a send; pass its result to `end`."""
        common: Line = {"op": self.operation(), "acks": -1, "idempotent": True, "key": "k"}
        common |= {"value": value, "partition": partition, **fields}
        self.line(process, "send", "invoke", **common)
        return {"process": process, **common}

    def end(self, send: Line, type_: str, offset: int | None = None, **fields: Any) -> None:
        fields = {**send, "offset": offset, **fields}
        self.line(fields.pop("process"), "send", type_, **fields)

    def send(
        self, process: str, value: str, offset: int, stored: bool = True, **fields: Any
    ) -> None:
        """A send that ends well; `stored` says whether the record is in the topic at the end."""
        send = self.invoke(process, value, **fields)
        self.end(send, "ok", offset)
        if stored:
            self.store(value, offset, send["partition"], send["key"])

    def unknown(self, process: str, value: str, **fields: Any) -> None:
        self.end(self.invoke(process, value, **fields), "info", error="REQUEST_TIMED_OUT")

    def store(self, value: str, offset: int, partition: int = 0, key: str = "k") -> None:
        self.log.setdefault(partition, {})[offset] = (key, value)

    def assign(self, process: str, offset: int = 0, partition: int = 0) -> None:
        self.line(process, "assign", "ok", partition=partition, offset=offset)

    def poll(
        self, process: str, *records: tuple[int, str], partition: int = 0, **fields: Any
    ) -> None:
        """One poll's records, as (offset, value)."""
        op = self.operation()
        self.line(process, "poll", "invoke", op=op, poll_id=op, topic=None, **fields)
        for offset, value in records:
            common: Line = {"op": op, "poll_id": op, "n": len(records), "partition": partition}
            common |= {"offset": offset, "key": "k", "value": value, **fields}
            self.line(process, "poll", "ok", **common)

    def list_offsets(
        self, process: str, which: str, offset: int, partition: int = 0, **fields: Any
    ) -> None:
        common: Line = {"op": self.operation(), "which": which, "partition": partition}
        self.line(process, "list_offsets", "invoke", **common)
        self.line(process, "list_offsets", "ok", offset=offset, **common, **fields)

    def read_to_the_end(self, process: str = "final", offsets: Iterable[int] | None = None) -> None:
        """The harness's full read of the records in `log`."""
        self.now = max(self.now, FINAL_NS)
        for partition, records in sorted(self.log.items()):
            self.line(process, "assign", "ok", partition=partition, offset=0, phase="final")
            chosen = sorted(records) if offsets is None else sorted(offsets)
            op = self.operation()
            for offset in chosen:
                key, value = records[offset]
                self.line(
                    process, "poll", "ok", op=op, poll_id=op, n=len(chosen), partition=partition,
                    offset=offset, key=key, value=value, phase="final",
                )  # fmt: skip

    def spark_reads(self) -> None:
        """The independent reader's full read."""
        for partition, records in sorted(self.log.items()):
            for offset, (key, value) in sorted(records.items()):
                self.spark_read(offset, value, partition, key)

    def spark_read(self, offset: int, value: str, partition: int = 0, key: str = "k") -> None:
        one = {"topic": self.topic, "partition": partition, "offset": offset}
        self.consumed.append({**one, "key": key, "value": value})

    def fault(self, name: str, effect: str | None, t_ns: int) -> None:
        target = f"broker-1 of {self.topic}"
        self.faults.append(
            {"name": name, "target": target, "t_ns": t_ns, "t": 0.0, "effect": effect}
        )

    def elected(self, leader: int, leader_epoch: int, partition: int = 0) -> None:
        """From now on ZooKeeper's state znode names this leader and epoch."""
        self.now += 10
        where = {"topic": self.topic, "partition": partition}
        when = {"t_ns": self.now + 5, "written_ns": self.now}
        elected = {"leader": leader, "leader_epoch": leader_epoch}
        self.witnessed.append({"what": "leader", **where, **when, **elected})

    def values(self, *offsets: int, partition: int = 0) -> list[tuple[int, str]]:
        return [(o, self.log[partition][o][1]) for o in offsets]


@dataclass(frozen=True, slots=True)
class Plant:
    name: str
    violations: frozenset[str]
    apart: frozenset[str]
    """Checks with findings that are expected or counted."""
    story: Callable[[Story], None]
    why: str

    def tell(self, topic: str | None = None) -> Story:
        story = Story(topic or self.name)
        self.story(story)
        return story


PLANTS: list[Plant] = []
Tell = Callable[[Story], None]


def sound(s: Story, n: int = 6) -> None:
    """Two producers in turn, one consumer that follows: offsets 0 to n - 1, all as it should be."""
    s.assign("consumer")
    for offset in range(n):
        s.send(f"producer-{offset % 2}", f"{s.topic}|v{offset}", offset)
    for offset in range(0, n, 3):
        s.poll("consumer", *s.values(*range(offset, min(offset + 3, n))), leader_epoch=offset // 3)
    s.poll("consumer")


def finish(s: Story) -> None:
    s.list_offsets("final", "earliest", 0)
    s.read_to_the_end()
    s.spark_reads()


def plant(
    violations: str = "", apart: str = "", begin: Tell | None = sound, end: Tell | None = finish
) -> Callable[[Tell], Tell]:
    """Registers a story, between a beginning and an end, under its function's name."""

    def register(story: Tell) -> Tell:
        def whole(s: Story) -> None:
            for part in (begin, story, end):
                if part is not None:
                    part(s)

        name = story.__name__.replace("_", "-")
        why = " ".join((story.__doc__ or "").split())
        PLANTS.append(
            Plant(name, frozenset(violations.split()), frozenset(apart.split()), whole, why)
        )
        return story

    return register


def v(s: Story, name: object) -> str:
    return f"{s.topic}|{name}"


def write(folder: Path, plants: Sequence[Plant]) -> dict[str, Plant]:
    """Writes a run's folder that holds all of them; returns topic -> plant."""
    folder.mkdir(parents=True, exist_ok=True)
    topics: dict[str, Plant] = {}
    history: list[Line] = []
    stories: list[Story] = []
    operations = 0
    for number, one in enumerate(plants):
        story = one.tell(f"t{number:02}-{one.name}")
        topics[story.topic] = one
        stories.append(story)
        for line in story.lines:
            moved: Line = {k: line[k] + operations for k in ("op", "poll_id") if k in line}
            history.append({"run": "planted", "seed": 0, "index": len(history), **line, **moved})
        operations += story.operations + 1
    _write_lines(folder / "history.jsonl", history)
    _write_lines(folder / "faults.jsonl", [f for s in stories for f in s.faults])
    _write_lines(folder / "witness.jsonl", [w for s in stories for w in s.witnessed])
    (folder / "cluster").mkdir(exist_ok=True)
    _write_lines(folder / "cluster" / "records.jsonl", [r for s in stories for r in s.segments])
    info = {
        "run": "planted",
        "seed": 0,
        "runtime": "planted",
        "final_read": True,
        "healed": True,
        "finished": True,
        "topics": [
            {"name": s.topic, "expect_loss": s.expect_loss, "unclean": s.unclean} for s in stories
        ],
    }
    (folder / "run.json").write_text(json.dumps(info), encoding="utf-8")
    _write_consumed(folder / "consumed", [c for s in stories for c in s.consumed])
    return topics


def _write_lines(path: Path, lines: Sequence[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _write_consumed(folder: Path, rows: Sequence[Line]) -> None:
    if not rows:
        return
    folder.mkdir(exist_ok=True)
    with duckdb.connect() as db:
        db.execute(
            'CREATE TABLE c (topic VARCHAR, partition INT, "offset" BIGINT, key VARCHAR, '
            "value VARCHAR, timestamp TIMESTAMP)"
        )
        db.executemany(
            "INSERT INTO c VALUES (?, ?, ?, ?, ?, NULL)",
            [[r["topic"], r["partition"], r["offset"], r["key"], r["value"]] for r in rows],
        )
        db.execute(f"COPY c TO '{folder / 'part-0.parquet'}' (FORMAT parquet)")
