"""Writes a client's operations to the history: names and counts them, and ends each exactly once.

Every `send` has an invoke line and one ending.  An operation that has no ending when the run stops
is ended as `info` (_UNFINISHED): its outcome is unknown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from highwater.cluster.client_files import Way
from highwater.verdict.history import FAIL, INFO, INVOKE, OK, HistoryWriter, ending_of, make_value


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    expect_loss: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonSpec(Way):
    """The settings of every process that records (a JSON file on its command line)."""

    run: str
    seed: int
    history: str
    value_bytes: int = 120
    max_outstanding: int = 200
    delivery_timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec(CommonSpec):
    """The settings of a chaos run's workload."""

    safe: Topic
    lossy: Topic
    rate: float = 100.0
    """Records a second for each producer of the safe topic."""
    producers: tuple[str, ...] = ("kafka-python", "confluent-kafka", "highwater")
    consumers: tuple[str, ...] = ("kafka-python", "confluent-kafka", "highwater")
    transactions: str = ""
    """confluent-kafka or java: the client of tellers and a copier, beside whom there are readers
    under read_committed; empty: there are none."""
    share_group: bool = False
    """Whether members of a share group, by the Java client, take the safe topic's records."""
    java_jars: str = ""
    """The folder of the Java client's jars, where it is used."""


@dataclass(slots=True)
class Counts:
    acked: int = 0
    failed: int = 0
    unknown: int = 0
    polled: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    by_process: dict[str, int] = field(default_factory=dict)


class Recorder:
    """The history's front for all clients of the process; thread-safe."""

    def __init__(
        self, spec: CommonSpec, writer: HistoryWriter, topics: Iterable[Topic] = ()
    ) -> None:
        self.spec = spec
        self.writer = writer
        self.expect_loss = {topic.name: topic.expect_loss for topic in topics}
        self.counts = Counts()
        self.phase = "run"
        self._lock = threading.Lock()

    def count(self, process: str, kind: str, error: str | None = None) -> None:
        with self._lock:
            setattr(self.counts, kind, getattr(self.counts, kind) + 1)
            of_process, errors = self.counts.by_process, self.counts.errors
            of_process[f"{process} {kind}"] = of_process.get(f"{process} {kind}", 0) + 1
            if error is not None:
                errors[error] = errors.get(error, 0) + 1


class Sender:
    """One producer's operations; `process` names one instance of a client."""

    def __init__(
        self, recorder: Recorder, process: str, client: str, *, acks: int, idempotent: bool
    ) -> None:
        self.recorder = recorder
        self.process = process
        self.client = client
        self.acks = acks
        self.idempotent = idempotent
        self.sequence = 0
        self._lock = threading.Lock()
        self._open: dict[int, dict[str, Any]] = {}

    @property
    def outstanding(self) -> int:
        return len(self._open)

    def invoke(self, topic: Topic, partition: int, **more: Any) -> tuple[int, str, str]:
        """Makes the next record and writes its invoke line; returns (op, key, value)."""
        t_ns = time.monotonic_ns()
        spec = self.recorder.spec
        value = make_value(spec.run, self.process, self.sequence, t_ns, spec.value_bytes)
        key = f"k{self.sequence % 16}"
        op = self.recorder.writer.new_id()
        fields: dict[str, Any] = {
            "op": op,
            "phase": self.recorder.phase,
            "topic": topic.name,
            "partition": partition,
            "key": key,
            "value": value,
            "acks": self.acks,
            "idempotent": self.idempotent,
            "expect_loss": topic.expect_loss,
            **more,
        }
        with self._lock:
            self._open[op] = fields
        self.sequence += 1
        self.recorder.writer.write(self.process, self.client, "send", INVOKE, t_ns=t_ns, **fields)
        return op, key, value

    def ok(self, op: int, offset: int, **more: Any) -> None:
        with self._lock:
            fields = self._open.pop(op, None)
        if fields is None:
            return
        if offset < 0:  # acknowledged without an offset (a duplicate, or acks=0)
            more["error"] = "_NO_OFFSET"
            self.recorder.count(self.process, "unknown", "_NO_OFFSET")
            self._write(INFO, fields, more)
            return
        self.recorder.count(self.process, "acked")
        self._write(OK, fields, {"offset": offset, **more})

    def error(
        self, op: int, error: str, attempts: int = 0, *, proven: bool | None = None, **more: Any
    ) -> None:
        """Ends a failed send.  `attempts`: 0 if the client does not show their number (it may have
        retried); `proven`: whether the client has proof that nothing was appended; None: the error
        decides.
        """
        with self._lock:
            fields = self._open.pop(op, None)
        if fields is None:
            return
        ending = ending_of(error, attempts=attempts, acks=self.acks)
        if proven is not None:
            ending = FAIL if proven else INFO
        self.recorder.count(self.process, "unknown" if ending == INFO else "failed", error)
        self._write(ending, fields, {"error": error, "attempt": attempts or None, **more})

    def _write(self, type_: str, fields: dict[str, Any], more: dict[str, Any]) -> None:
        self.recorder.writer.write(self.process, self.client, "send", type_, **{**fields, **more})

    def abandon(self) -> None:
        """Ends the open operations, whose outcome will never be known."""
        for op in list(self._open):
            self.error(op, "_UNFINISHED")


class Reader:
    """One consumer's operations."""

    def __init__(self, recorder: Recorder, process: str, client: str) -> None:
        self.recorder = recorder
        self.process = process
        self.client = client
        self._expect_loss = recorder.expect_loss

    def _write(self, f: str, type_: str, **fields: Any) -> None:
        self.recorder.writer.write(
            self.process, self.client, f, type_, phase=self.recorder.phase, **fields
        )

    def assign(self, topic: str, partition: int, offset: int) -> None:
        expect_loss = self._expect_loss.get(topic)
        self._write(
            "assign", OK, topic=topic, partition=partition, offset=offset, expect_loss=expect_loss
        )

    def poll_invoke(self) -> int:
        poll_id = self.recorder.writer.new_id()
        self._write("poll", INVOKE, poll_id=poll_id, op=poll_id)
        return poll_id

    def poll_end(self, poll_id: int, n: int, error: str | None = None) -> None:
        """Ends an empty or a failed poll."""
        if error is not None:
            self._write("poll", INFO, poll_id=poll_id, op=poll_id, n=0, error=error)
        elif n == 0:
            self._write("poll", OK, poll_id=poll_id, op=poll_id, n=0)

    def record(
        self,
        poll_id: int,
        n: int,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        **more: Any,
    ) -> None:
        self.recorder.count(self.process, "polled")
        self._write(
            "poll",
            OK,
            poll_id=poll_id,
            op=poll_id,
            n=n,
            topic=topic,
            partition=partition,
            offset=offset,
            key=_text(key),
            value=_text(value),
            expect_loss=self._expect_loss.get(topic),
            **more,
        )

    def list_offsets(self, topic: str, partition: int, which: str, op: int, **end: Any) -> None:
        """Writes an invoke line without `offset` and `error`, or an ending with one of them."""
        type_ = OK if "offset" in end else INFO if "error" in end else INVOKE
        self._write(
            "list_offsets",
            type_,
            op=op,
            topic=topic,
            partition=partition,
            which=which,
            expect_loss=self._expect_loss.get(topic),
            **end,
        )


def _text(data: bytes | None) -> str | None:
    return data.decode("utf-8", "backslashreplace") if data is not None else None
