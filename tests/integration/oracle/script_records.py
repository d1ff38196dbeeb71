"""Requests for records, offsets and metadata, by producers, consumers and followers."""

from __future__ import annotations

import struct
from typing import Any

from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.records import Record, build_batch
from tests.integration.oracle.asking import Case

PRODUCE, FETCH, LIST_OFFSETS, METADATA, EPOCH_END = 0, 1, 2, 3, 23
DELETE_RECORDS, PRODUCERS = 21, 61
NOBODY = "no-such-topic"
T0 = 1_600_000_000_000
FAR = 4_000_000_000_000


def batch(count: int = 3, key: bytes | None = b"k", **more: Any) -> bytes:
    records = [Record(key, b"value %d" % n, T0 + n, ()) for n in range(count)]
    return bytes(build_batch(records, **more))


def timed(*timestamps: int) -> bytes:
    return bytes(build_batch([Record(b"k", b"v", t, ()) for t in timestamps]))


def broken_batch() -> bytes:
    data = bytearray(batch())
    data[-2] ^= 0xFF
    return bytes(data)


def counted_wrong() -> bytes:
    """A batch whose header names one record more than it holds; its CRC is right."""
    from highwater.kafka.wire.records import crc32c

    data = bytearray(batch())
    data[57:61] = struct.pack(">i", 4)
    data[17:21] = struct.pack(">I", crc32c(memoryview(data)[21:]))
    return bytes(data)


def produce(
    records: bytes | None, topic: str = "two", partition: int = 0, acks: int = -1, **more: Any
) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [
            {"name": topic, "partition_data": [{"index": partition, "records": records}]}
        ],
        **more,
    }


def idempotent(producer_id: int, epoch: int, sequence: int) -> dict[str, Any]:
    return produce(
        batch(2, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence), "one"
    )


def produces() -> list[Case]:
    def case(name: str, body: Any, to: str = "1") -> Case:
        return Case(name, PRODUCE, body, to, versions=(3, 99))

    cases = [
        Case("before batches", PRODUCE, produce(batch(), "old"), versions=(0, 2)),
        Case("before batches, unknown topic", PRODUCE, produce(batch(), NOBODY), versions=(0, 2)),
        case("a batch", produce(batch())), case("acks=1", produce(batch(), acks=1)),
        case("two batches at once", produce(batch() + batch())), case("no records", produce(b"")),
        Case("null records", PRODUCE, produce(None), "1", (9, 9), within_s=5),
        case("unknown topic", produce(batch(), NOBODY)),
        case("unknown partition", produce(batch(), partition=9)),
        case("negative partition", produce(batch(), partition=-1)),
        case("not the leader", produce(batch()), "2"),
        case("no replica", produce(batch(), "one"), "2"), case("acks=2", produce(batch(), acks=2)),
        case("a partition twice", twice(produce(batch()), "topic_data", "partition_data")),
        case("wrong CRC", produce(broken_batch())), case("wrong count", produce(counted_wrong())),
        case("a torn batch", produce(batch()[:-5])),
        case("magic 1", produce(batch()[:16] + b"\1" + batch()[17:])),
        case("magic 3", produce(batch()[:16] + b"\3" + batch()[17:])),
        case("a control batch", produce(batch(attributes=0x20))),
        case("too large", produce(batch(200), "small")),
        case("no key, compacted", produce(batch(key=None), "compacted")),
        case("with keys, compacted", produce(batch(), "compacted")),
        case("LogAppendTime", produce(batch(), "stamped")),
        case("offsets topic", produce(batch(), "__consumer_offsets")),
        case("too old", produce(batch(), "recent")),
        case("without a time, where it is limited", produce(timed(-1, -1), "recent")),
        case("one of three too old", produce(timed(FAR, FAR + 1, 5), "recent")),
        case("too far ahead", produce(timed(T0, FAR, T0, FAR), "not-ahead")),
        case("behind, where ahead is limited", produce(timed(T0, T0 - 5), "not-ahead")),
        case("compressed anew", produce(batch(), "zipped")),
        case("in another codec", produce(batch(compression=Compression.LZ4), "zipped")),
        case("in the topic's codec", produce(batch(compression=Compression.GZIP), "zipped")),
    ]  # fmt: skip
    codecs = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
    cases += [case(codec.name, produce(batch(compression=codec))) for codec in codecs]
    for name, numbers in {
        "first of a producer": (7001, 0, 0),
        "the same again": (7001, 0, 0),
        "its next": (7001, 0, 2),
        "a gap in sequence": (7001, 0, 9),
        "a later epoch": (7001, 3, 0),
        "an earlier epoch": (7001, 1, 0),
        "a later epoch, not from 0": (7001, 5, 7),
        "unknown producer, not from 0": (7002, 0, 5),
    }.items():
        # the first version decides; later ones see duplicates, on both sides
        cases.append(case(f"idempotent: {name}", idempotent(*numbers)))
    return cases


def fetch(topic: str = "two", partition: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    place = {
        "partition": partition, "current_leader_epoch": more.pop("leader_epoch", -1),
        "fetch_offset": offset, "last_fetched_epoch": more.pop("last_fetched_epoch", -1),
        "log_start_offset": -1, "partition_max_bytes": more.pop("partition_max_bytes", 1 << 20),
    }  # fmt: skip
    return {
        "replica_id": -1,
        "max_wait_ms": 50,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [place]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **more,
    }


def twice(body: dict[str, Any], topics: str, partitions: str) -> dict[str, Any]:
    """The same request with its only partition once more in its topic, and that topic once more."""
    (topic,) = body[topics]
    doubled = {**topic, partitions: [*topic[partitions], *topic[partitions]]}
    return {**body, topics: [doubled, topic]}


def keep_session(_: int, answer: Any, facts: dict[str, Any]) -> None:
    facts["session"] = answer.get("session_id", 0)


NAMED = (7, 12)
"""The versions whose sessions have topics by name: here Apache Kafka knows no ids."""


def fetches() -> list[Case]:
    def case(name: str, body: Any, to: str = "1", versions: tuple[int, int] = (4, 99)) -> Case:
        return Case(name, FETCH, body, to, versions)

    def incremental(epoch: int, **more: Any) -> Any:
        return lambda _, facts: fetch(session_id=facts["session"], session_epoch=epoch, **more)

    return [
        case("from the start", fetch()), case("read_committed", fetch(isolation_level=1)),
        case("from within a batch", fetch(offset=1)), case("from the end", fetch("empty")),
        case("beyond the end", fetch(offset=1_000_000)),
        case("a negative offset", fetch(offset=-7)), case("unknown topic", fetch(NOBODY)),
        case("unknown partition", fetch(partition=9)), case("from a follower", fetch(), "2"),
        case("from a follower, as a debugging consumer", fetch(replica_id=-2), "2"),
        case("no replica", fetch("one"), "2"),
        case("one byte of a partition", fetch(partition_max_bytes=1)),
        case("one byte in all", fetch(max_bytes=1)), case("no byte", fetch(max_bytes=0)),
        case("an old leader epoch", fetch(leader_epoch=0, topic="moved"), versions=(9, 99)),
        case("a new leader epoch", fetch(leader_epoch=99), versions=(9, 99)),
        case("a later epoch was read", fetch(last_fetched_epoch=50), versions=(12, 99)),
        case("as a replica that is none", fetch(replica_id=77)),
        case("as a debugging consumer", fetch(replica_id=-2)),
        case("as a future replica", fetch(replica_id=-3)),
        case("a leader epoch that is none", fetch(leader_epoch=-2), versions=(9, 99)),
        case("less than no byte", fetch(max_bytes=-1, partition_max_bytes=-1)),
        case("less than no byte in all", fetch(max_bytes=-1)),
        case("less than no byte of a partition", fetch(partition_max_bytes=-1)),
        case("less than no byte, at the end", fetch("empty", max_bytes=-1)),
        case("less than no byte at least", fetch(min_bytes=-1)),
        case("less than no wait", fetch(max_wait_ms=-1, topic="empty")),
        case("a partition twice", twice(fetch(), "topics", "partitions")),
        case("no topic name", fetch("")),
        case("an isolation level that is none", fetch(isolation_level=7)),
        case("a session of nothing", fetch(session_epoch=0, topics=[]), versions=(7, 99)),
        case(
            "an unknown session begins anew",
            fetch(session_id=12345, session_epoch=0, topics=[]),
            versions=(7, 99),
        ),
        Case("a session begins", FETCH, fetch(session_epoch=0), "1", NAMED, keep_session),
        case("nothing changed", incremental(1, topics=[]), versions=NAMED),
        case("a wrong session epoch", incremental(77, topics=[]), versions=NAMED),
        case("an unknown session", fetch(session_id=12345, session_epoch=3), versions=(7, 99)),
        case("a session ends", incremental(-1, topics=[]), versions=(7, 99)),
    ]  # fmt: skip


def list_offsets(
    timestamp: int, topic: str = "two", partition: int = 0, **more: Any
) -> dict[str, Any]:
    place = {
        "partition_index": partition,
        "current_leader_epoch": more.pop("leader_epoch", -1),
        "timestamp": timestamp,
        "max_num_offsets": 1,
    }
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [place]}],
        **more,
    }


def beside_another(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "topics": [*body["topics"], *list_offsets(-1, "one")["topics"]]}


def offsets() -> list[Case]:
    def case(name: str, body: Any, to: str = "1", versions: tuple[int, int] = (1, 99)) -> Case:
        return Case(name, LIST_OFFSETS, body, to, versions)

    def epoch_end(epoch: int, topic: str = "two", current: int = -1, partition: int = 0) -> Any:
        place = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [place]}]}

    cases = [
        case("latest", list_offsets(-1)),
        case("latest, read_committed", list_offsets(-1, isolation_level=1)),
        case("earliest", list_offsets(-2)),
        case("by time", list_offsets(T0 + 1)),
        case("by time, before all", list_offsets(0)),
        case("by time, after all", list_offsets(T0 + 10**9)),
        case("of an empty partition", list_offsets(-1, "empty")),
        case("by time, empty", list_offsets(T0, "empty")),
        case("max timestamp", list_offsets(-3), versions=(7, 99)),
        case("max timestamp, empty", list_offsets(-3, "empty"), versions=(7, 99)),
        case("unknown special timestamp", list_offsets(-9)),
        case("unknown topic", list_offsets(-1, NOBODY)),
        case("unknown partition", list_offsets(-1, partition=9)),
        case("not the leader", list_offsets(-1), "2"),
        case("an old leader epoch", list_offsets(-1, "moved", leader_epoch=0), versions=(4, 99)),
        case("a new leader epoch", list_offsets(-1, leader_epoch=99), versions=(4, 99)),
        case("a leader epoch that is none", list_offsets(-1, leader_epoch=-2), versions=(4, 99)),
        case("as a debugging consumer", list_offsets(-1, replica_id=-2)),
        case("from a follower, as a debugging consumer", list_offsets(-1, replica_id=-2), "2"),
        case("a partition twice", twice(list_offsets(-1), "topics", "partitions")),
        case("twice, and another", beside_another(twice(list_offsets(-1), "topics", "partitions"))),
        case("no topic name", list_offsets(-1, "")),
        case("an isolation level that is none", list_offsets(-1, isolation_level=7)),
    ]
    for name, body, to in (
        ("this epoch", epoch_end(0), "1"),
        ("a later epoch", epoch_end(50), "1"),
        ("no epoch", epoch_end(-1), "1"),
        ("less than no epoch", epoch_end(-2), "1"),
        ("less than no current epoch", epoch_end(0, current=-2), "1"),
        ("a partition twice", twice(epoch_end(0), "topics", "partitions"), "1"),
        ("no topic name", epoch_end(0, ""), "1"),
        ("an epoch that is past", epoch_end(0, "moved"), "2"),
        ("old current epoch", epoch_end(0, "moved", 0), "2"),
        ("new current epoch", epoch_end(0, "two", 99), "1"),
        ("unknown topic", epoch_end(0, NOBODY), "1"),
        ("unknown partition", epoch_end(0, partition=9), "1"),
        ("not the leader", epoch_end(0), "2"),
    ):
        cases.append(Case(name, EPOCH_END, body, to))
    return cases


def metadata() -> list[Case]:
    def topics(*names: str | None, **more: Any) -> dict[str, Any]:
        return {
            "topics": [{"name": n} for n in names],
            "allow_auto_topic_creation": False,
            **more,
        }

    operations = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    return [
        Case("all topics", METADATA, {"topics": None}, versions=(1, 99)),
        Case("all topics, v0", METADATA, {"topics": []}, versions=(0, 0)),
        Case("no topics", METADATA, topics(), versions=(1, 99)),
        Case("one topic", METADATA, topics("two")),
        Case("the same at the other broker", METADATA, topics("two"), "2"),
        Case("one topic twice", METADATA, topics("two", "two")),
        Case("an unknown topic", METADATA, topics(NOBODY), versions=(4, 99)),
        Case("a bad name", METADATA, topics("a/b"), versions=(4, 99)),
        Case("no name", METADATA, topics(""), versions=(4, 99)),
        Case("a long name", METADATA, topics("x" * 250), versions=(4, 99)),
        Case("authorized operations", METADATA, topics("two", **operations), versions=(8, 99)),
        Case("null name", METADATA, topics(None), versions=(10, 99)),
        Case("describe cluster", 60, {"include_cluster_authorized_operations": False}),
        Case("describe cluster, operations", 60, {"include_cluster_authorized_operations": True}),
        Case("describe cluster, controllers", 60, {"endpoint_type": 2}, versions=(1, 99)),
        Case("describe cluster, endpoint 9", 60, {"endpoint_type": 9}, versions=(1, 99)),
    ]


def records() -> list[Case]:
    """Requests that delete or describe records; they come after all that read them."""

    def delete(offset: int, topic: str = "two", partition: int = 0) -> dict[str, Any]:
        place = {"partition_index": partition, "offset": offset}
        return {"topics": [{"name": topic, "partitions": [place]}], "timeout_ms": 5000}

    def producers(topic: str, *partitions: int) -> dict[str, Any]:
        return {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}

    return [
        Case("to an offset", DELETE_RECORDS, delete(2)),
        Case("to one before", DELETE_RECORDS, delete(1)),
        Case("beyond the HW", DELETE_RECORDS, delete(10**9)),
        Case("a negative offset", DELETE_RECORDS, delete(-5)),
        Case("unknown topic", DELETE_RECORDS, delete(1, NOBODY)),
        Case("unknown partition", DELETE_RECORDS, delete(1, partition=9)),
        Case("not the leader", DELETE_RECORDS, delete(1), "2"),
        Case("compacted", DELETE_RECORDS, delete(1, "compacted")),
        Case("fetch below the start", FETCH, fetch(offset=0), versions=(4, 99)),
        Case("earliest then", LIST_OFFSETS, list_offsets(-2), versions=(1, 99)),
        Case("to the HW", DELETE_RECORDS, delete(-1)),
        Case("no topic name", DELETE_RECORDS, delete(-1, "")),
        Case("of the offsets topic", DELETE_RECORDS, delete(0, "__consumer_offsets")),
        Case("a partition twice", DELETE_RECORDS, twice(delete(-1), "topics", "partitions")),
        Case("producers", PRODUCERS, producers("one", 0)),
        Case("producers: none", PRODUCERS, producers("empty", 0)),
        Case("producers: unknown", PRODUCERS, producers(NOBODY, 0)),
        Case("producers: no topic name", PRODUCERS, producers("", 0)),
        Case("producers: a bad name", PRODUCERS, producers("a b", 0)),
        Case("producers: a partition twice", PRODUCERS, producers("one", 0, 0)),
        Case("producers: unknown partition", PRODUCERS, producers("one", 8)),
        Case("producers: not the leader", PRODUCERS, producers("two", 0), "2"),
    ]


def cases() -> list[Case]:
    return [*metadata(), *produces(), *fetches(), *offsets(), *records()]
