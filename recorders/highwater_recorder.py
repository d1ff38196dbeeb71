"""Wraps confluent-kafka's producer and consumer, and writes docs/history.md.  Copy this file.

history = History("my-run/history.jsonl", "worker-1")
producer = RecordedProducer(history, {"bootstrap.servers": SERVERS, "acks": "all"})
producer.produce("orders", "order 17", "ada")
consumer = RecordedConsumer(history, {"bootstrap.servers": SERVERS, "group.id": "g"}, ["orders"])
message = consumer.poll(1.0)
full_read(history, {"bootstrap.servers": SERVERS}, ["orders"])     # when all are done
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


class History:
    """One process's lines; several may append to one file."""

    def __init__(self, path: str, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._process = process
        self._lock = threading.Lock()
        self._last = 0
        self._op = random.getrandbits(20) << 32

    def op(self) -> int:
        with self._lock:
            self._op += 1
            return self._op

    def line(self, f: str, type_: str, **fields: Any) -> None:
        with self._lock:
            self._last = now = max(time.time_ns(), self._last + 1)
            line = {"index": now, "t_ns": now, "process": self._process, "f": f, "type": type_}
            line |= {"client": "confluent-kafka"}
            line |= {name: value for name, value in fields.items() if value is not None}
            os.write(self._file, json.dumps(line).encode() + b"\n")


class RecordedProducer:
    """Ask `acks` and `enable.idempotence` by the settings, as ever."""

    def __init__(self, history: History, settings: dict[str, Any]) -> None:
        self._history = history
        self._producer = Producer(settings)
        acks = str(settings.get("acks", settings.get("request.required.acks", "all")))
        idempotent = str(settings.get("enable.idempotence", False)).lower() == "true"
        self._about = {"acks": -1 if acks in ("all", "-1") else int(acks), "idempotent": idempotent}

    def produce(self, topic: str, value: str, key: str | None = None, **more: Any) -> None:
        send = {"topic": topic, "value": value, "key": key, "op": self._history.op(), **self._about}

        def ended(error: Any, message: Any) -> None:
            if error is not None:  # librdkafka tries again, so no error proves anything
                self._history.line("send", "info", error=error.name(), **send)
                return
            place = {"partition": message.partition(), "offset": message.offset()}
            self._history.line("send", "ok", **place, **send)

        self._history.line("send", "invoke", partition=more.get("partition"), **send)
        self._producer.produce(topic, value, key, on_delivery=ended, **more)

    def poll(self, timeout: float = 0) -> int:
        return int(self._producer.poll(timeout))

    def flush(self, timeout: float = 60) -> int:
        return int(self._producer.flush(timeout))


class RecordedConsumer:
    """A member of a group; `assign` lines mark where its places begin again."""

    def __init__(self, history: History, settings: dict[str, Any], topics: list[str]) -> None:
        self._history = history
        self.consumer = Consumer(settings)
        isolation = settings.get("isolation.level", "read_committed")
        self._isolation = isolation if isolation == "read_committed" else None
        if topics:
            self.consumer.subscribe(topics, on_assign=self._assigned)

    def _assigned(self, _: Any, places: list[Any]) -> None:
        for place in places:
            where = {"topic": place.topic, "partition": place.partition}
            self._history.line("assign", "ok", op=self._history.op(), **where)

    def poll(self, timeout: float, phase: str = "run") -> Any:
        message = self.consumer.poll(timeout)
        if message is not None and message.error() is None:
            op = self._history.op()
            self._history.line(
                "poll", "ok", op=op, poll_id=op, n=1, phase=phase, isolation=self._isolation,
                topic=message.topic(), partition=message.partition(), offset=message.offset(),
                key=_text(message.key()), value=_text(message.value()),
            )  # fmt: skip
        return message

    def close(self) -> None:
        self.consumer.close()


def full_read(history: History, settings: dict[str, Any], topics: list[str]) -> None:
    """Reads the topics from start to end, aborted records too; raises where it does not get on."""
    own = {"group.id": "full-read", "enable.auto.commit": False, "enable.partition.eof": False}
    own |= {"isolation.level": "read_uncommitted", "auto.offset.reset": "earliest"}
    reader = RecordedConsumer(history, {**settings, **own}, [])
    known = reader.consumer.list_topics(timeout=30).topics
    for topic, number in [(t, n) for t in topics for n in known[t].partitions]:
        read = {"op": history.op(), "topic": topic, "partition": number, "phase": "final"}
        history.line("full_read", "invoke", **read)
        first, end = reader.consumer.get_watermark_offsets(TopicPartition(topic, number), 30)
        history.line("assign", "ok", **{**read, "op": history.op(), "offset": first})
        reader.consumer.assign([TopicPartition(topic, number, first)])
        heard = time.monotonic()
        while first < end and _position(reader, topic, number) < end:
            heard = time.monotonic() if reader.poll(0.5, "final") is not None else heard
            if time.monotonic() - heard > 60:
                raise TimeoutError(f"{topic}-{number} gave nothing for 60 s, before offset {end}")
        history.line("full_read", "ok", **read, offset=end)
    reader.close()


def _position(reader: RecordedConsumer, topic: str, number: int) -> int:
    return int(reader.consumer.position([TopicPartition(topic, number)])[0].offset)


def _text(data: Any) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
