"""Sends an application's input, watches its output while it works, and counts both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio
from confluent_kafka import Producer, TopicPartition

from highwater.chaos.aimed.following import follow
from highwater.chaos.aimed.windows import WINDOWS, Windows
from highwater.client_calls import SOON_S, ClientHangs, apart
from highwater.verdict.contracts.fields import Source, extract
from highwater.verdict.contracts.reader import record_of
from highwater.verdict.history import LineLog

KEYS = 16
FLUSH_S = 60.0
COUNT_S = 0.25


def with_id(template: Any, path: Sequence[str | int], id_: str) -> Any:
    """The document with the id at this path; adds objects and lists that are missing on the way."""
    if not path:
        return id_
    step, *rest = path
    if isinstance(step, int):
        made = list(template) if isinstance(template, list) else []
        made += [None] * (step + 1 - len(made))
        made[step] = with_id(made[step], rest, id_)
        return made
    fields = dict(template) if isinstance(template, dict) else {}
    return {**fields, step: with_id(fields.get(step), rest, id_)}


@dataclass(slots=True)
class Feeder:
    """Sends records with ids `RUN-0`, `RUN-1`, ... by acks=all, idempotently."""

    bootstrap: str
    topic: str
    run: str
    path: Sequence[str | int]
    templates: Sequence[Any] = ({},)
    tell: Callable[[str, int, int], None] = lambda id_, partition, offset: None
    """Is called for each input that was acknowledged, with its partition and offset."""
    acknowledged: set[str] = field(default_factory=set)
    unknown: int = 0
    sent: int = 0
    left: list[str] = field(default_factory=list)
    """Calls that did not return."""

    async def feed(self, rate: float, stop: trio.Event) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        phase = f"feeding {self.topic}"
        began = trio.current_time()
        try:
            while not stop.is_set():
                while self.sent < (trio.current_time() - began) * rate and not stop.is_set():
                    self._send(producer)
                producer.poll(0)
                await trio.sleep(min(0.05, 1 / rate))
            await self._drain(producer)
        finally:
            last = [producer]
            del producer
            with trio.CancelScope(shield=True):
                await self._end(phase, SOON_S, destroy, last)
            _left_behind.extend(last)
            self.unknown = self.sent - len(self.acknowledged)

    async def _drain(self, producer: Any) -> None:
        """Waits by polls for what is in flight: `flush` would run the callbacks in its thread."""
        with trio.move_on_after(FLUSH_S):
            while len(producer):
                producer.poll(0)
                await trio.sleep(0.02)

    async def _end(self, phase: str, limit_s: float, call: Any, *arguments: Any) -> None:
        """Makes a last call of the producer.  If it does not return, the sends whose results it
        would have reported have an unknown outcome."""
        if not self.left:
            try:
                await apart(phase, limit_s, call, *arguments)
            except ClientHangs as error:
                self.left.append(str(error))

    def _send(self, producer: Any) -> None:
        id_ = f"{self.run}-{self.sent}"
        template = self.templates[self.sent % len(self.templates)]
        value = json.dumps(with_id(template, self.path, id_))

        def told(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(id_)
                # None if an earlier attempt stored it and the answer to that was lost
                if (offset := message.offset()) is not None:
                    self.tell(id_, message.partition(), offset)

        try:
            producer.produce(self.topic, value, f"key-{self.sent % KEYS}", on_delivery=told)
            self.sent += 1
        except BufferError:  # the cluster is away: it is sent later
            producer.poll(0)


_left_behind: list[Any] = []
"""Producers for whose end no thread was free in time: ending them here would block the loop."""


def destroy(last: list[Any]) -> None:
    """Lets the last reference to a producer go: librdkafka then waits for its threads."""
    last.clear()


@dataclass(slots=True)
class Watcher:
    """The ids that the output shows, as they come."""

    bootstrap: str
    topic: str
    partitions: int
    source: Source
    isolation: str = "read_committed"
    tell: Callable[[str, int, int], None] = lambda id_, partition, offset: None
    """Is called for each id, with its partition and offset."""
    passed: Callable[[int, int], None] | None = None
    """Is called with a partition and the offset at which it ends for now."""
    ids: set[str] = field(default_factory=set)
    again: int = 0
    """How many of its records had an id that had come before."""
    last: float = 0.0
    """When the last record came, by trio's clock."""
    left: list[str] = field(default_factory=list)
    """Calls that did not return."""

    async def watch(self) -> None:
        """Reads the output until cancelled."""

        async def places(consumer: Any) -> list[TopicPartition]:
            return [TopicPartition(self.topic, p, 0) for p in range(self.partitions)]

        phase = f"watching {self.topic}"
        await follow(
            phase, self.bootstrap, self.isolation, places, self._take, self.left, self.passed
        )

    def _take(self, message: Any) -> None:
        found = extract({"id": self.source}, record_of(message))[1]
        id_ = str(found)
        self.again += id_ in self.ids
        self.ids.add(id_)
        self.last = trio.current_time()
        if found is not None:
            self.tell(id_, message.partition(), message.offset())


async def count(log: LineLog, feeder: Feeder, watcher: Watcher, windows: Windows) -> None:
    """Writes lines with "t_ns", the counts from the beginning ("sent", "acknowledged", "came",
    "again") and the present sizes of the windows ("ahead", "behind"): until it is cancelled, and a
    last line then."""

    def tell() -> None:
        acknowledged, came = len(feeder.acknowledged), len(watcher.ids)
        now = {"t_ns": time.monotonic_ns(), "sent": feeder.sent, "acknowledged": acknowledged}
        open_ = {window: windows.size(window) for window in WINDOWS}
        log.write(**now, came=came, again=watcher.again, **open_)

    try:
        while True:
            tell()
            await trio.sleep(COUNT_S)
    finally:
        tell()
