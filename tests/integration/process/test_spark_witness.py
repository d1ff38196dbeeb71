"""Spark reads a real cluster through its Kafka source, and the verdict rests on what it read."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from highwater.cluster.run_folder import RunFolder, RunInfo, TopicInfo
from highwater.verdict import runner
from highwater.verdict.history import HistoryWriter
from tests.background import BackgroundCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]
TOPIC = "witnessed"
N = 90


def produce(bootstrap: str, writer: HistoryWriter) -> None:
    """N records to three partitions, all of them acknowledged and in the history."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for i in range(N):
        common = {"op": writer.new_id(), "topic": TOPIC, "partition": i % 3, "key": "k"}
        common |= {"value": f"v{i}", "acks": -1, "idempotent": True}

        def delivered(error: object, message: object, common: dict[str, object] = common) -> None:
            assert error is None
            offset = message.offset()  # type: ignore[attr-defined]
            writer.write("producer", "confluent-kafka", "send", "ok", **common, offset=offset)

        writer.write("producer", "confluent-kafka", "send", "invoke", **common)
        producer.produce(TOPIC, common["value"], "k", partition=i % 3, on_delivery=delivered)
    assert producer.flush(60) == 0


def read(bootstrap: str, writer: HistoryWriter) -> None:
    """A consumer of the run: the full read at the end is left to Spark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "joins none"})
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(3)])
    left = N
    while left:
        for message in consumer.consume(N, 5.0):
            assert message.error() is None
            left -= 1
            found = {"partition": message.partition(), "offset": message.offset(), "key": "k"}
            found["value"] = message.value().decode()
            writer.write("consumer", "confluent-kafka", "poll", "ok", topic=TOPIC, **found)
    consumer.close()


def test_spark_reads_the_cluster_itself(background: BackgroundCluster, tmp_path: Path) -> None:
    bootstrap = background.bootstrap_servers
    background.create_topic(TOPIC, partitions=3)
    folder = RunFolder(tmp_path)
    folder.create()
    topics = [TopicInfo(TOPIC, 3, 3, 2)]
    folder.write_info(
        RunInfo(
            "r",
            1,
            "process",
            1.0,
            bootstrap=bootstrap,
            topics=topics,
            healed=True,
            finished=True,
        )
    )
    writer = HistoryWriter(folder.history, run="r", seed=1)
    produce(bootstrap, writer)
    read(bootstrap, writer)
    writer.close()

    # only Spark can have read what is in the topic and not in the history
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(TOPIC, b"nobody said so", partition=0)
    assert producer.flush(60) == 0
    verdict = runner.run(tmp_path, "spark", lambda line: None)
    assert verdict.spark is not None
    assert verdict.spark["ingest"]["records"] == N + 1
    assert [i for i, c in verdict.checks.items() if c.status == "violated"] == ["C7"]
    assert verdict.checks["C7"].violations == 1
    assert "nobody said so: was read, but nobody sent it" in verdict.checks["C7"].examples[0]
