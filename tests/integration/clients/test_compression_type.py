"""A topic's own codec: clients of three makes read batches that the brokers have recompressed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient, NewTopic

pytestmark = [pytest.mark.integration, pytest.mark.apache]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def read_by_kafka_python(bootstrap: str, topic: str, count: int) -> list[str]:
    found: list[str] = []
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    for record in consumer:
        found.append(f"{record.key.decode()}:{record.value.decode()}")
        if len(found) == count:
            break
    consumer.close()
    return found


@pytest.mark.parametrize("kept", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(
    kcat: Run, apache_tool: Run, admin: KafkaAdminClient, bootstrap: str, kept: str
) -> None:
    topic = f"kept-{kept}"
    configs = {"compression.type": kept}
    admin.create_topics([NewTopic(topic, 1, 3, topic_configs=configs)])
    sent = [f"k{n}:value {n} " + "x" * 100 for n in range(500)]
    for codec in ("none", "lz4" if kept == "gzip" else "gzip"):
        produced = kcat(
            *("-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "a=b"),
            *("-X", "acks=all"),
            stdin="\n".join(sent) + "\n",
        )
        assert produced.returncode == 0, produced.stderr
    want = sent + sent
    by_librdkafka = kcat(
        *("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"),
        *("-f", "%o %h %k:%s\n"),
    )
    assert by_librdkafka.stdout.splitlines() == [f"{n} a=b {line}" for n, line in enumerate(want)]
    if kept != "snappy":  # kafka-python needs a library for that codec that is not among ours
        assert read_by_kafka_python(bootstrap, topic, len(want)) == want
    by_java = apache_tool(
        "org.apache.kafka.tools.VerifiableConsumer",
        f"--bootstrap-server {bootstrap} --topic {topic} --group-id {topic} --verbose"
        f" --max-messages {len(want)}".split(),
    )
    assert by_java.returncode == 0, by_java.stdout + by_java.stderr
    lines = [json.loads(line) for line in by_java.stdout.splitlines() if line.startswith("{")]
    assert [line["offset"] for line in lines if line["name"] == "record_data"] == [
        *range(len(want))
    ]
    assert [line["value"] for line in lines if line["name"] == "record_data"] == [
        line.partition(":")[2] for line in want
    ]
