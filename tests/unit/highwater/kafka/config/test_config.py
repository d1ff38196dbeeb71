"""Properties: their sources, their ranges, and the message for a wrong one."""

from __future__ import annotations

import pytest

from highwater.kafka.config import Config
from highwater.kafka.config.checks import ConfigError, shown
from highwater.kafka.config.property_table import KEPT
from highwater.kafka.config.sources import (
    environment_properties,
    load,
    parse_properties,
    profile_properties,
    property_of_variable,
)

ZK = "zookeeper.connect=localhost:2181\n"


def config_of(text: str, **given: object) -> Config:
    return load([("server.properties", ZK + text)], **given).config  # type: ignore[arg-type]


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_of(text)
    return caught.value.lines


def test_java_properties_syntax() -> None:
    text = """
# a comment
! another
  broker.id = 3
log.dirs:/a,\\
         /b
broker.rack   r\\u0041\\=1
empty=
"""
    assert parse_properties(text) == {
        "broker.id": "3", "log.dirs": "/a,/b", "broker.rack": "rA=1", "empty": "",
    }  # fmt: skip


def test_types() -> None:
    config = config_of(
        "broker.id=7\nauto.create.topics.enable=FALSE\nlog.dirs=/a, /b\n"
        "log.cleaner.min.cleanable.ratio=0.25\nlog.retention.bytes=5000000000\nbroker.rack=r1\n"
    )
    assert config.broker_id == 7
    assert config.auto_create_topics_enable is False
    assert config.log_dirs == ("/a", "/b")
    assert config.log_cleaner_min_cleanable_ratio == 0.25
    assert config.log_retention_bytes == 5_000_000_000
    assert config.broker_rack == "r1"


def test_later_sources_win() -> None:
    loaded = load(
        [("a", ZK + "broker.id=1\nnum.partitions=2\n"), ("b", "broker.id=2\n")],
        {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NUM_IO_THREADS": "4"},
        ["num.io.threads=5"],
        "test",
    )
    assert (loaded.config.broker_id, loaded.config.num_partitions) == (2, 3)
    assert loaded.config.num_io_threads == 5
    assert loaded.config.replica_lag_time_max_ms == 2000
    assert config_of("replica.lag.time.max.ms=900\n", profile="test").replica_lag_time_max_ms == 900


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_BROKER_ID", "broker.id"),
        ("KAFKA_LISTENER_NAME_A__B_SSL___KEY", "listener.name.a_b.ssl-key"),
        ("KAFKA_CFG_ZOOKEEPER_CONNECT", "zookeeper.connect"),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", None),
        ("PATH", None),
    ],
)
def test_environment_variable_names(variable: str, name: str | None) -> None:
    assert property_of_variable(variable) == name


def test_cfg_variables_are_an_alias_that_loses() -> None:
    environment = {"KAFKA_CFG_BROKER_ID": "1", "KAFKA_BROKER_ID": "2", "KAFKA_CFG_BROKER_RACK": "r"}
    properties, warnings = environment_properties(environment)
    assert properties == {"broker.id": "2", "broker.rack": "r"}
    assert len(warnings) == 1
    assert "KAFKA_CFG_BROKER_RACK" in warnings[0]


def test_listeners_follow_advertised_listeners_of_the_environment() -> None:
    loaded = load(
        [("f", ZK)], {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:19092,B://x:1"},
        ["listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT"],
    )  # fmt: skip
    assert loaded.config.listeners == "PLAINTEXT://0.0.0.0:19092,B://0.0.0.0:1"


@pytest.mark.parametrize(
    ("text", "property_", "remedy"),
    [
        ("num.io.threads=0", "num.io.threads=0: ", "use 1 or more"),
        ("num.io.threads=many", "num.io.threads=many: ", "without unit"),
        ("num.partitions=3000000000", "num.partitions=3000000000: ", "at most 2147483647"),
        ("delete.topic.enable=yes", "delete.topic.enable=yes: ", "true or false"),
        ("compression.type=brotli", "compression.type=brotli: ", "zstd"),
        ("log.cleanup.policy=delete,shred", "log.cleanup.policy=delete,shred: ", "compact"),
        ("log.cleaner.min.cleanable.ratio=2", "log.cleaner.min.cleanable.ratio=2: ", "lower"),
        ("inter.broker.protocol.version=3.9", "inter.broker.protocol.version=3.9: ", "2.6"),
        ("broker.id=1001", "broker.id=1001: ", "0 to 1000"),
        ("replica.fetch.wait.max.ms=20000", "replica.fetch.wait.max.ms=20000: ", "lower it"),
        ("log.retention.ms=0", "log.retention.ms=0: ", "-1"),
        ("process.roles=broker", "process.roles=broker: ", "remove it"),
        ("queued.max.request.bytes=5", "queued.max.request.bytes=5: ", "raise it"),
        ("max.connections.per.ip.overrides=x", "max.connections.per.ip.overrides=x: ", "as 127"),
        ("max.connections.per.ip=0", "max.connections.per.ip=0: ", "raise it"),
        ("log.dirs=/a,/a", "log.dirs=/a,/a: ", "once"),
    ],
)
def test_each_complaint_is_one_line_with_property_value_and_remedy(
    text: str, property_: str, remedy: str
) -> None:
    lines = complaints(text)
    assert len(lines) == 1
    assert lines[0].startswith(property_)
    assert remedy in lines[0]
    assert "\n" not in lines[0]


def test_times_of_consumer_groups_lie_within_their_bounds() -> None:
    group = "group.consumer."
    for wrong, bounds in (
        ("session.timeout.ms=44999", ""),
        ("session.timeout.ms=60001", ""),
        ("heartbeat.interval.ms=4999", ""),
        ("heartbeat.interval.ms=15001", ""),
        ("heartbeat.interval.ms=45000", "max.heartbeat.interval.ms=50000"),
        ("assignors=,", ""),
    ):
        (line,) = complaints(f"{group}{wrong}\n{group}{bounds}" if bounds else group + wrong)
        assert line.startswith(group + wrong.split("=")[0])
    lower = ("min.session.timeout.ms=1", "session.timeout.ms=5001", "max.session.timeout.ms=5001")
    higher = ("max.heartbeat.interval.ms=5000", "min.heartbeat.interval.ms=1")
    config = config_of("\n".join(group + line for line in (*lower, *higher)))
    assert config.group_consumer_session_timeout_ms == 5001


def test_times_of_share_groups_lie_within_their_bounds() -> None:
    group = "group.share."
    for wrong in (
        "session.timeout.ms=44999",
        "session.timeout.ms=60001",
        "heartbeat.interval.ms=4999",
        "heartbeat.interval.ms=15001",
        "record.lock.duration.ms=14999",
        "record.lock.duration.ms=60001",
    ):
        (line,) = complaints(group + wrong)
        assert line.startswith(group + wrong.split("=")[0])
    longer = "heartbeat.interval.ms=45000", "max.heartbeat.interval.ms=50000"
    (line,) = complaints("\n".join(group + line for line in longer))
    assert "not less than" in line
    wider = ("min.session.timeout.ms=1", "session.timeout.ms=5001", "max.session.timeout.ms=5001",
             "max.record.lock.duration.ms=90000", "record.lock.duration.ms=70000",
             "min.record.lock.duration.ms=1000", "min.heartbeat.interval.ms=1",
             "max.heartbeat.interval.ms=5000")  # fmt: skip
    config = config_of("\n".join(group + line for line in wider))
    assert config.group_share_record_lock_duration_ms == 70000


def test_snapshots_of_share_groups_state_are_not_too_far_apart() -> None:
    name = "share.coordinator.snapshot.update.records.per.snapshot"
    (line,) = complaints(f"{name}=501")
    assert line.startswith(name)
    assert config_of(f"{name}=0").share_coordinator_snapshot_update_records_per_snapshot == 0


def test_all_complaints_come_at_once() -> None:
    assert len(complaints("num.io.threads=0\nnum.network.threads=x\n")) == 2


def test_zookeeper_connect_has_no_default() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is not set"):
        load([("f", "broker.id=1")])


def test_unknown_properties_are_kept_and_warned_of_without_their_values() -> None:
    loaded = load([("f", ZK + "my.own.password=hunter2\n")])
    assert loaded.warnings == ("my.own.password: unknown property, ignored",)
    assert loaded.config.originals["my.own.password"] == "hunter2"
    (typed,) = load([("f", ZK + "num.partitons=4\n")]).warnings
    assert typed == "num.partitons: unknown property, ignored; did you mean num.partitions?"
    assert "hunter2" not in repr(loaded.config)
    assert shown("ssl.key.password", "hunter2") == "[hidden]"
    assert shown("broker.id", "1") == "1"


def test_derived_values() -> None:
    assert config_of("log.retention.hours=2").retention_ms == 7_200_000
    assert config_of("log.retention.hours=2\nlog.retention.minutes=3").retention_ms == 180_000
    assert config_of("log.retention.minutes=3\nlog.retention.ms=4").retention_ms == 4
    assert config_of("log.retention.hours=-1").retention_ms == -1
    assert config_of("log.roll.hours=1").segment_ms == 3_600_000
    assert config_of("log.roll.ms=10").segment_ms == 10
    assert config_of("log.flush.scheduler.interval.ms=9").flush_ms == 9


def test_which_ids_a_broker_may_have() -> None:
    assert config_of("broker.id=1500\nreserved.broker.max.id=2000\n").broker_id == 1500
    assert config_of("").broker_id == -1
    [line] = complaints("broker.id.generation.enable=false\n")
    assert line.startswith("broker.id=-1: must be 0 or more")


def test_aliases() -> None:
    assert config_of("node.id=4\nlog.dir=/x").broker_id == 4
    assert config_of("log.dir=/x").log_dirs == ("/x",)
    assert config_of("log.dir=/x\nlog.dirs=/y").log_dirs == ("/y",)


def test_profiles() -> None:
    assert config_of("", profile="kafka").replica_lag_time_max_ms == 30000
    assert config_of("").replica_lag_time_max_ms == 10000
    assert profile_properties("test", 1)["offsets.topic.replication.factor"] == "1"
    assert profile_properties("test", 5)["offsets.topic.replication.factor"] == "3"
    config_of("", profile="test")
    with pytest.raises(ConfigError, match="no such profile"):
        config_of("", profile="production")


def test_every_property_name_is_kafkas_or_our_own() -> None:
    assert "log.dirs" in KEPT
    assert "originals" not in KEPT
    assert all(name == name.lower() and "_" not in name for name in KEPT)
