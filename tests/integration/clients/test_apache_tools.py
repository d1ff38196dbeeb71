"""Apache Kafka's own command-line classes (3.9, the Java client) work unchanged."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.apache]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
TOPICS = "org.apache.kafka.tools.TopicCommand"


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_topic_is_created_described_grown_listed_and_deleted(
    apache_tool: Run, bootstrap: str
) -> None:
    def topics(*arguments: str) -> str:
        return said(apache_tool(TOPICS, ["--bootstrap-server", bootstrap, *arguments]))

    topic = "tools-life"
    sizes = ["--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=3600000"]
    assert f"Created topic {topic}." in topics("--create", "--topic", topic, *sizes)
    described = topics("--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    assert "retention.ms=3600000" in described
    rows = re.findall(
        r"Partition: (\d)\tLeader: (\d)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", described
    )
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert {row[1] for row in rows} == {"1", "2", "3"}, "leaders are spread over the brokers"
    for _, leader, replicas, isr in rows:
        assert replicas.split(",")[0] == leader
        assert sorted(isr.split(",")) == ["1", "2", "3"]
    topics("--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe", "--topic", topic)
    assert topic in topics("--list").split()
    topics("--delete", "--topic", topic)
    assert topic not in topics("--list").split()


def test_what_cannot_be_created_is_refused_with_kafkas_own_error(
    apache_tool: Run, bootstrap: str
) -> None:
    done = apache_tool(
        TOPICS,
        f"--bootstrap-server {bootstrap} --create --topic wide --replication-factor 4".split(),
    )
    assert done.returncode != 0
    assert "InvalidReplicationFactorException" in done.stdout + done.stderr


@pytest.mark.parametrize("acks", ["-1", "1"])
def test_the_verifiable_producer_gets_every_record_acknowledged(
    apache_tool: Run, bootstrap: str, acks: str
) -> None:
    topic, count = f"tools-verifiable{acks}", 2000
    lines = said(
        apache_tool(
            "org.apache.kafka.tools.VerifiableProducer",
            f"--bootstrap-server {bootstrap} --topic {topic} --max-messages {count}"
            f" --acks {acks} --throughput -1".split(),
        )
    ).splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    succeeded = [e for e in events if e["name"] == "producer_send_success"]
    assert {e["value"] for e in succeeded} == {str(n) for n in range(count)}
    places = {(e["partition"], e["offset"]) for e in succeeded}
    assert len(places) == count, "each record has a place of its own"
    assert events[-1]["name"] == "tool_data"
    assert (events[-1]["sent"], events[-1]["acked"]) == (count, count)
    offsets = said(
        apache_tool(
            "org.apache.kafka.tools.GetOffsetShell",
            ["--bootstrap-server", bootstrap, "--topic", topic, "--time", "latest"],
        )
    )
    ends = {int(p): int(end) for p, end in re.findall(rf"{topic}:(\d+):(\d+)", offsets)}
    assert sum(ends.values()) == count
    for partition, end in ends.items():
        assert sum(1 for p, _ in places if p == partition) == end


def test_all_api_versions_can_be_listed_from_every_broker(apache_tool: Run, bootstrap: str) -> None:
    listed = said(
        apache_tool("kafka.admin.BrokerApiVersionsCommand", ["--bootstrap-server", bootstrap])
    )
    assert len(re.findall(r"\(id: [123] rack: null\) -> \(", listed)) == 3
    assert "UNSUPPORTED" not in re.findall(r"Produce\(0\): ([^\n]*)", listed)[0]


@pytest.mark.rare
def test_committed_offsets_are_read_from_their_topic_as_monitors_do(
    apache_tool: Run, bootstrap: str
) -> None:
    """Kafka's own formatter opens the commits that the group coordinator has written."""
    group, topic = "tools-monitored", "tools-monitored"
    at = ["--bootstrap-server", bootstrap]
    said(apache_tool(TOPICS, [*at, "--create", "--topic", topic, "--partitions", "1"]))
    reset = ["--reset-offsets", "--to-offset", "0", "--execute", "--topic", topic]
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    said(apache_tool(command, [*at, "--group", group, *reset]))
    reading = ["--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "4000"]
    reading += ["--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"]
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    shown = said(apache_tool(consumer, [*at, *reading]))
    decoder, entries = json.JSONDecoder(), []
    while shown.startswith("{"):
        entry, end = decoder.raw_decode(shown)
        entries.append(entry)
        shown = shown[end:].lstrip()
    (ours,) = (entry for entry in entries if entry["key"]["data"]["group"] == group)
    assert ours["key"]["data"] == {"group": group, "topic": topic, "partition": 0}
    assert (ours["value"]["version"], ours["value"]["data"]["offset"]) == (3, 0)


def test_features_are_lowered_and_raised(apache_tool: Run, bootstrap: str) -> None:
    def feature(*words: str) -> str:
        command = "org.apache.kafka.tools.FeatureCommand"
        return said(apache_tool(command, ["--bootstrap-server", bootstrap, *words]))

    def levels() -> dict[str, str]:
        found = re.findall(r"Feature: (\S+)\t.*FinalizedVersionLevel: (\d+)", feature("describe"))
        return dict(found)

    known = levels()
    assert known["transaction.version"] == "2"
    assert "was downgraded" in feature("downgrade", "--feature", "transaction.version=1")
    assert levels() == {**known, "transaction.version": "1"}
    assert "was upgraded" in feature("upgrade", "--feature", "transaction.version=2")
    assert levels() == known
