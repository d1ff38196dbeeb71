"""Topic properties: defaults from the broker's, overrides, and the ones that are refused."""

from __future__ import annotations

import pytest

from highwater.kafka.config import LONG_MAX, Config
from highwater.kafka.config.property_table import KEPT, TOPIC
from highwater.kafka.config.topic_values import check_overrides, effective, parse
from highwater.kafka.errors import ApiError, ErrorCode


def test_defaults_follow_the_broker() -> None:
    values = effective(Config(log_retention_minutes=2, message_max_bytes=7), {})
    assert values["retention.ms"] == 120_000
    assert values["max.message.bytes"] == 7
    assert values["flush.ms"] == LONG_MAX
    assert values["segment.ms"] == 604_800_000
    assert values["remote.storage.enable"] is False


def test_overrides_are_typed_and_foreign_ones_passed_over() -> None:
    overrides = {"retention.ms": "5", "preallocate": "true", "cheese": "1", "flush.ms": "soon"}
    values = effective(Config(), overrides)
    assert values["retention.ms"] == 5
    assert values["preallocate"] is True
    assert values["flush.ms"] == LONG_MAX
    assert "cheese" not in values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"), ("cleanup.policy", "compact,delete"), ("cleanup.policy", ""),
        ("min.cleanable.dirty.ratio", "0.1"), ("compression.type", "zstd"),
        ("message.format.version", "2.6-IV0"), ("compression.zstd.level", "-5"),
    ],
)  # fmt: skip
def test_good(name: str, value: str) -> None:
    check_overrides(Config(), {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"), ("retention.ms", "1h"), ("retention.ms", str(LONG_MAX + 1)),
        ("segment.bytes", "13"), ("segment.bytes", "2147483648"), ("min.insync.replicas", "0"),
        ("cleanup.policy", "shred"), ("preallocate", "yes"), ("min.cleanable.dirty.ratio", "1.1"),
        ("compression.type", "brotli"), ("message.timestamp.type", "Never"), ("cheese", "1"),
        ("message.format.version", "9.9"), ("message.format.version", "2.60"),
        ("remote.storage.enable", "true"), ("compression.lz4.level", "18"),
    ],
)  # fmt: skip
def test_bad(name: str, value: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_overrides(Config(), {name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.detail is not None
    assert name in caught.value.detail


def test_lags_must_fit() -> None:
    with pytest.raises(ApiError, match=r"min\.compaction\.lag\.ms=9"):
        check_overrides(Config(), {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})


def test_every_default_and_synonym_is_a_broker_property() -> None:
    for row in TOPIC.values():
        assert all(name in KEPT for name in row.synonyms), row.name
        assert bool(row.attribute) == bool(row.synonyms), row.name


@pytest.mark.parametrize("listed", ["", "*", "0:1", "0:1,1:2", "0:1, 1:2"])
def test_throttled_replicas(listed: str) -> None:
    parse("leader.replication.throttled.replicas", listed)


@pytest.mark.parametrize("listed", ["0", "0:x", "*,0:1", "none", "-1:0"])
def test_throttled_replicas_that_are_none(listed: str) -> None:
    with pytest.raises(ApiError, match="partition:broker"):
        parse("follower.replication.throttled.replicas", listed)
