"""All machines of a watch, and their state on disk.

A stream delivers each batch at least once.  `batches` has the last batch of each stream that is in
the state; both are in one file, so that a batch that comes again after a restart changes nothing.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from highwater.verdict.watching.alarm import Alarm
from highwater.verdict.watching.dispatch import TOPIC, TRANSACTIONS, groups_of
from highwater.verdict.watching.topic_watch import TopicWatch
from highwater.verdict.watching.transaction_watch import TransactionWatch

VERSION: Final = 1


class Record(NamedTuple):
    """One record that the independent reader found."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    t_ms: int


@dataclass(frozen=True)
class Promises:
    """The run's promises, which the machines check."""

    unseen_s: float = 60.0
    horizon_s: float = 60.0
    unclean: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()


class StateDamaged(Exception):
    """The state on disk is of another version, or torn; the message is one line."""


class Machines:
    def __init__(self, promises: Promises) -> None:
        self.promises = promises
        self.topics: dict[str, TopicWatch] = {}
        self.transactions = TransactionWatch(
            unseen_s=promises.unseen_s, horizon_s=promises.horizon_s
        )
        self.batches: dict[str, int] = {}
        """Stream -> its last batch that is in this state."""
        self.position = 0
        """How many bytes of the history are in this state."""
        self.lines = self.records = self.bad_lines = 0

    def topic(self, name: str) -> TopicWatch:
        if name not in self.topics:
            self.topics[name] = TopicWatch(
                name,
                unseen_s=self.promises.unseen_s,
                horizon_s=self.promises.horizon_s,
                unclean=name in self.promises.unclean,
                compacted=name in self.promises.compacted,
            )
        return self.topics[name]

    def take_lines(self, pieces: Sequence[bytes], now_ms: int) -> None:
        """Takes whole lines of the history; those that are no JSON objects are counted."""
        lines: list[dict[str, Any]] = []
        for piece in pieces:
            for text in piece.decode("utf-8", "replace").split("\n"):
                try:
                    line = json.loads(text)
                    line["t_ns"], line["f"], line["type"]
                    lines.append(line)
                except (ValueError, TypeError, KeyError):
                    self.bad_lines += bool(text.strip())
        lines.sort(key=lambda line: (line["t_ns"], line.get("index", 0)))
        self.lines += len(lines)
        for line in lines:
            for group in groups_of(line):
                if group == TRANSACTIONS:
                    self.transactions.line(line, now_ms)
                else:
                    self.topic(group.removeprefix(TOPIC)).line(line, now_ms)

    def take_records(self, records: Iterable[Record], now_ms: int) -> None:
        for record in sorted(records, key=lambda record: record[:3]):
            self.records += 1
            key, value = _text(record.key), _text(record.value)
            self.topic(record.topic).record(
                record.partition, record.offset, key, value, record.t_ms, now_ms
            )

    def due(self, now_ms: int) -> None:
        """Raises the alarms whose time has come: a record that was not read by now is unseen."""
        for topic in self.topics.values():
            topic.due(now_ms)
        self.transactions.due(now_ms)

    def forget(self) -> None:
        """Forgets everything older than the horizon."""
        for topic in self.topics.values():
            topic.forget()
        self.transactions.forget()

    def alarms(self) -> list[Alarm]:
        """The alarms since the last call."""
        of_topics = [alarm for topic in self.topics.values() for alarm in topic.told.take()]
        return of_topics + self.transactions.told.take()

    def save(self, path: Path) -> int:
        """Replaces the state on disk, whole or not at all; returns its size in bytes."""
        state = (
            VERSION,
            self.batches,
            (self.position, self.lines, self.records, self.bad_lines),
            {name: topic.dump() for name, topic in self.topics.items()},
            self.transactions.dump(),
        )
        data = pickle.dumps(state, protocol=5)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(data)
        os.replace(temporary, path)
        return len(data)

    def load(self, path: Path) -> None:
        """Reads what `save` wrote; does nothing if there is no such file."""
        if not path.exists():
            return
        try:
            version, batches, counts, topics, transactions = pickle.loads(path.read_bytes())
            if version != VERSION:
                raise ValueError(f"it is of version {version}")
            self.batches = batches
            self.position, self.lines, self.records, self.bad_lines = counts
            for name, state in topics.items():
                self.topic(name).load(state)
            self.transactions.load(transactions)
        except (ValueError, TypeError, EOFError, pickle.UnpicklingError) as error:
            raise StateDamaged(f"{path} cannot be read: {error}: remove {path.parent}") from error


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")
