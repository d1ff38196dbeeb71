"""A client that an error ends is named, and kafka-python's producers are replaced where they would
never send again."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.future import Future

from highwater.chaos.workloads import kafka_python
from highwater.chaos.workloads.pace import Pace
from highwater.chaos.workloads.recorder import Recorder, Spec, Topic
from highwater.chaos.workloads.workload_client import Client
from highwater.verdict.history import HistoryWriter, read_lines

SAFE = Topic("safe", 3)
PATIENCE_S = 10.0


def recorder(folder: Path) -> Recorder:
    spec = Spec(
        run="r", seed=7, bootstrap="127.0.0.1:9", history=str(folder / "history.jsonl"),
        safe=SAFE, lossy=SAFE, delivery_timeout_s=PATIENCE_S,
    )  # fmt: skip
    return Recorder(spec, HistoryWriter(folder / "history.jsonl", run="r", seed=7), [SAFE])


class Unlucky(Client):
    def work(self) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")


def test_a_client_that_an_error_ends_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Unlucky(recorder(tmp_path), "unlucky")
    with caplog.at_level(logging.ERROR):
        client.thread.start()
        client.thread.join(PATIENCE_S)
    assert client.failure == "ConnectionResetError: [Errno 104] Connection reset by peer"
    assert "unlucky was ended by an error" in caplog.text
    assert "Traceback" in caplog.text


class OverTls:
    """Three producers: a handshake of the first is reset as it waits for metadata, none comes for
    the second, and a record of the third times out after one that was acknowledged."""

    made: ClassVar[list[str]] = []

    def __init__(self, **config: Any) -> None:
        self.number = len(self.made)
        self.made.append(config["client_id"])
        self.sent = 0

    def send(self, topic: str, **record: Any) -> Future:
        if self.number == 0:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.number == 1:
            raise KafkaTimeoutError("Failed to update metadata after 5.0 secs.")
        future, self.sent = Future(), self.sent + 1
        if self.number == 2 and self.sent > 1:
            future.failure(KafkaTimeoutError("Expiring 1 record(s)"))
        else:
            metadata = type("Metadata", (), {"offset": 10 * self.number + self.sent})
            future.success(metadata)
        return future

    def close(self, timeout: float) -> None:
        assert timeout < 1, f"kafka-python waits {timeout} s for each batch"
        if self.number == 2:
            raise KafkaTimeoutError("Timeout waiting for future")


def test_a_producer_that_would_never_send_again_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OverTls, "made", [])
    monkeypatch.setattr(kafka_python.kafka, "KafkaProducer", OverTls)
    records = recorder(tmp_path)
    producer = kafka_python.KafkaPythonProducer(records, SAFE, Pace(200.0), "producer")
    producer.thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while records.counts.acked < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    producer.stopping.set()
    producer.thread.join(PATIENCE_S)
    records.writer.close()
    assert not producer.thread.is_alive()
    assert producer.failure == ""
    assert OverTls.made == [f"producer-{n}" for n in range(4)]
    lines = [line for line in read_lines(tmp_path / "history.jsonl") if line["type"] != "invoke"]
    told = [(line["process"], line["type"], line.get("error")) for line in lines if "op" in line]
    assert told[:5] == [
        ("producer-0", "info", "CONNECTION_RESET"),
        ("producer-1", "info", "KAFKA_TIMEOUT"),
        ("producer-2", "ok", None),
        ("producer-2", "info", "KAFKA_TIMEOUT"),
        ("producer-3", "ok", None),
    ]
