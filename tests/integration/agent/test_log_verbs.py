"""A topic's logs are rolled, retained and compacted at once, for tests that cannot wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from highwater.agent.client import Control, ControlError
from tests.integration.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CONFIGS = {
    "keyed": {"cleanup.policy": "compact"},
    "old": {"retention.ms": "1"},
    "lasting": {},
}


@pytest.fixture
def bootstrap(control: Control) -> Iterator[str]:
    for name, config in CONFIGS.items():
        control.create_topic(name, partitions=2, config=config)
    yield str(control.status()["bootstrap"])
    for name in CONFIGS:
        control.delete_topic(name)


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(100):
        producer.produce(topic, f"value-{n}".encode(), f"key-{n % 5}".encode(), partition=0)
    assert producer.flush(30) == 0


def test_it_is_compacted_however_little_is_dirty(control: Control, bootstrap: str) -> None:
    fill(bootstrap, "keyed")
    assert "3 segments began on 3 replicas" in control.fault("roll", "keyed-0")["effect"]
    assert control.fault("roll", "keyed")["effect"].startswith("0 segments began on 6 replicas")
    fill(bootstrap, "keyed")  # compaction begins a new segment itself
    assert " bytes went on 6 replicas" in control.fault("compact", "keyed")["effect"]
    values = sorted(read_all(bootstrap, "keyed", 1).values())
    assert values == [b"value-%d" % n for n in range(95, 100)]
    assert control.fault("compact", "keyed")["effect"].startswith("0 bytes went")


def test_what_is_due_goes_and_no_more(control: Control, bootstrap: str) -> None:
    fill(bootstrap, "old")
    fill(bootstrap, "lasting")
    assert "3 segments went on 3 replicas" in control.fault("retain", "old-0")["effect"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none is joined"})
    assert consumer.get_watermark_offsets(TopicPartition("old", 0)) == (100, 100)
    consumer.close()
    assert "0 segments went on 6 replicas" in control.fault("retain", "lasting")["effect"]
    assert len(list(read_all(bootstrap, "lasting", 1).values())) == 100


def test_what_cannot_be_done_is_said(control: Control, bootstrap: str) -> None:
    said = "cleanup.policy of lasting is delete, not compact"
    with pytest.raises(ControlError, match=said):
        control.fault("compact", "lasting")
    for name in ("lastin", "lasting-2"):
        with pytest.raises(ControlError, match=f"no topic or partition '{name}'"):
            control.fault("roll", name)
    with pytest.raises(ControlError, match="__consumer_offsets is the coordinators' own"):
        control.fault("compact", "__consumer_offsets")
