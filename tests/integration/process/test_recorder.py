"""recorders/highwater_recorder.py on a real cluster: a sound history is valid, a loss is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from highwater.verdict import runner
from tests.background import BackgroundCluster
from tests.waiting import eventually

sys.path.insert(0, str(Path(__file__).parents[3] / "recorders"))
from highwater_recorder import (
    History,
    RecordedConsumer,
    RecordedProducer,
    full_read,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
COUNT = 60


@pytest.mark.parametrize("lost", [False, True])
def test_a_recorded_history_is_judged(
    background: BackgroundCluster, tmp_path: Path, lost: bool
) -> None:
    topic = f"recorded-{lost}".lower()
    background.create_topic(topic, partitions=3)
    servers = {"bootstrap.servers": background.bootstrap_servers}
    history = History(str(tmp_path / "history.jsonl"), "worker")
    producer = RecordedProducer(history, {**servers, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, f"value {number}", f"key {number % 7}")
    assert producer.flush() == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = RecordedConsumer(history, {**servers, **group}, [topic])
    values: set[bytes] = set()

    def read_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.add(message.value())
        return len(values) == COUNT

    eventually(read_all, "the group reads all records", within_s=60)
    consumer.close()
    if lost:  # and one more, which nobody reads before it goes
        producer.produce(topic, "gone", partition=0)
        assert producer.flush() == 0
        admin = AdminClient(servers)
        last = TopicPartition(topic, 0, -1)  # up to the high watermark
        admin.delete_records([last])[last].result(30)
    full_read(history, servers, [topic])
    verdict = runner.run(tmp_path, "duckdb", lambda line: None)
    assert verdict.verdict == ("invalid" if lost else "valid"), (verdict.headline, verdict.notes)
    if lost:
        assert verdict.headline.startswith("record ")
        assert verdict.checks["C4"].examples[0].endswith("to worker and is in no read")
