"""A broker's properties and a topic's: a log has the values that DescribeConfigs gives, and obeys
them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from highwater.broker.admin.configs import topic_entries
from highwater.broker.log.log_config import LogConfig
from highwater.kafka.config import Config
from highwater.kafka.config.property_row import text_of
from highwater.kafka.config.property_table import TOPIC
from highwater.kafka.config.sources import load
from tests.unit.broker.log.conftest import START_MS, Logs, batch, lead

HOUR_MS = 3_600_000
ATTRIBUTES = {
    f.metadata["row"].name: f.name for f in fields(LogConfig) if f.metadata["row"].name in TOPIC
}


def config_of(*properties: str) -> Config:
    return load([("f", "zookeeper.connect=localhost:1\n" + "\n".join(properties))]).config


def said(config: Config, overrides: dict[str, str] | None = None) -> dict[str, str | None]:
    return {e.name: e.value for e in topic_entries(config, overrides or {})}


@pytest.mark.parametrize(
    ("properties", "name", "value"),
    [
        (["log.retention.hours=2"], "retention.ms", 2 * HOUR_MS),
        (["log.retention.minutes=3"], "retention.ms", 180_000),
        (["log.retention.minutes=3", "log.retention.hours=2"], "retention.ms", 180_000),
        (["log.retention.ms=4", "log.retention.minutes=3"], "retention.ms", 4),
        (["log.retention.hours=-1"], "retention.ms", -1),
        (["log.retention.hours=-7"], "retention.ms", -1),
        (["log.retention.minutes=-1"], "retention.ms", -1),
        (["log.retention.ms=-5"], "retention.ms", -1),
        (["log.roll.hours=1"], "segment.ms", HOUR_MS),
        (["log.roll.hours=1", "log.roll.ms=9"], "segment.ms", 9),
        (["log.roll.jitter.hours=1"], "segment.jitter.ms", HOUR_MS),
        (["log.roll.jitter.hours=1", "log.roll.jitter.ms=9"], "segment.jitter.ms", 9),
        (["log.flush.scheduler.interval.ms=9"], "flush.ms", 9),
        (["log.flush.scheduler.interval.ms=9", "log.flush.interval.ms=8"], "flush.ms", 8),
        (["log.flush.interval.messages=5"], "flush.messages", 5),
        (["log.retention.bytes=6"], "retention.bytes", 6),
        (["log.segment.bytes=2000"], "segment.bytes", 2000),
        (["log.index.size.max.bytes=400"], "segment.index.bytes", 400),
        (["log.index.interval.bytes=7"], "index.interval.bytes", 7),
        (["message.max.bytes=8"], "max.message.bytes", 8),
        (["log.cleanup.policy=compact"], "cleanup.policy", "compact"),
        (["log.cleaner.delete.retention.ms=9"], "delete.retention.ms", 9),
        (["log.cleaner.min.compaction.lag.ms=9"], "min.compaction.lag.ms", 9),
        (["log.cleaner.max.compaction.lag.ms=9"], "max.compaction.lag.ms", 9),
        (["log.cleaner.min.cleanable.ratio=0.1"], "min.cleanable.dirty.ratio", 0.1),
        (["log.message.timestamp.type=LogAppendTime"], "message.timestamp.type", "LogAppendTime"),
        (["log.segment.delete.delay.ms=9"], "file.delete.delay.ms", 9),
    ],
)
def test_each_property_of_the_broker_is_what_the_log_has(
    properties: list[str], name: str, value: object
) -> None:
    config = config_of(*properties)
    attributes = ATTRIBUTES
    assert getattr(LogConfig.of(config), attributes[name]) == value
    assert said(config)[name] == text_of(value)
    for other, attribute in attributes.items():
        assert said(config)[other] == text_of(getattr(LogConfig.of(config), attribute)), other


def test_a_topics_own_value_wins_over_each_unit() -> None:
    config = config_of("log.retention.minutes=3", "log.roll.hours=1")
    overrides = {"retention.ms": "-1", "segment.ms": "7"}
    made = LogConfig.of(config, overrides)
    assert (made.retention_ms, made.segment_ms) == (-1, 7)
    assert said(config, overrides)["retention.ms"] == "-1"


@pytest.mark.parametrize(
    ("property_", "kept"),
    [("log.retention.minutes=3", 180_000), ("log.retention.hours=1", HOUR_MS)],
)
def test_a_log_keeps_records_as_long_as_the_broker_says(
    logs: Logs, property_: str, kept: int
) -> None:
    config = config_of(property_, f"log.segment.bytes={len(batch(1))}")
    log = logs.open(LogConfig.of(config))
    for _ in range(3):
        lead(log, batch(1))
    assert log.delete_old_segments(START_MS + kept, high_watermark=3) == 0
    assert log.delete_old_segments(START_MS + kept + 1, high_watermark=3) == 3


def test_a_log_is_kept_for_ever_where_the_broker_says_a_negative_time(logs: Logs) -> None:
    log = logs.open(LogConfig.of(config_of("log.retention.minutes=-1")))
    lead(log, batch(1))
    assert log.delete_old_segments(START_MS * 2, high_watermark=1) == 0


def test_a_segment_is_rolled_when_the_broker_says(logs: Logs) -> None:
    log = logs.open(LogConfig.of(config_of("log.roll.hours=1")))
    lead(log, batch(1))
    lead(log, batch(1, timestamp=START_MS + HOUR_MS), now_ms=START_MS + HOUR_MS)
    assert len(log.segments) == 1
    later = START_MS + HOUR_MS + 1
    lead(log, batch(1, timestamp=later), now_ms=later)
    assert len(log.segments) == 2
