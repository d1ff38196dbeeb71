"""Fetch, API 1, v4 to v17 by hand: requests by struct, answers as headers between runs of segment
bytes.

Both sides are here.  The broker parses requests and frames answers whose records are sent by
sendfile, so `response_parts` interleaves packed headers with the records that the caller gives (a
FileSlice, bytes).  The follower builds requests and takes answers apart without copying the
records.
Source: FetchRequest.json and FetchResponse.json of Apache Kafka; KIP-227 (sessions), KIP-320
(epochs), KIP-516 (topic ids, v13), KIP-903 (the replica's id in a tag, v15), KIP-951 (v16).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.node_endpoints import NodeEndpoint, endpoint_tags, leader_tag
from highwater.kafka.wire.varint import (
    MAX_ELEMENTS,
    MAX_TAGS,
    compact_string,
    read_compact_string,
    read_id,
    read_uvarint,
    skip_tags,
    uvarint,
    within,
)

MIN_VERSION, MAX_VERSION, FLEXIBLE = 4, 17, 12
BY_ID = 13
"""From v13 on topics are named by their ids."""
REPLICA_STATE = 15
"""From v15 on the id of the replica that asks comes last, in a tag."""
TELLS_LEADER = 16
CONSUMER_REPLICA_ID = -1
"""Other negative ids are read as this one; -2 is Kafka's debugging consumer."""

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_Q = struct.Struct(">q")
_IQ = struct.Struct(">iq")
_HEAD = struct.Struct(">iiiib")
_HEAD_AFTER_ID = struct.Struct(">iiib")
_ANSWER = struct.Struct(">ihqqq")
_ANSWERED = struct.Struct(">hii")
_OF_PARTITION = struct.Struct(">ihqqqi")
_STEADY = struct.Struct(">iiiibiii")
_NAMED = struct.Struct(">iiqqi")
STEADY_VERSION = 11


Key = TopicPartition | tuple[bytes, int]
"""A partition's key in a client's session: its name, or its topic's id and its number."""


def key_of(tp: TopicPartition, topic_id: bytes) -> Key:
    return (topic_id, tp.partition) if topic_id else tp


class FetchPartition(NamedTuple):
    """One partition of a request; epochs are -1 where the client does not know them.

    With a topic id, the name in `tp` is the one that the id has now: empty where it has none.
    """

    tp: TopicPartition
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    topic_id: bytes = b""
    """Empty where the client names the topic by its name."""


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: Sequence[Key]
    rack_id: str
    by_id: bool = False
    """Whether topics are named by their ids."""


class FetchedPartition(NamedTuple):
    """One partition of an answer.  `records` may be any object, even without `len`; `size` counts.

    `aborted` lists (producer id, first offset) for read_committed, or is None.  `diverging` is
    (epoch, end offset) of KIP-595, from v12 on.
    """

    tp: TopicPartition
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Any
    size: int
    aborted: Sequence[tuple[int, int]] | None = None
    diverging: tuple[int, int] | None = None
    topic_id: bytes = b""
    leader: tuple[int, int] | None = None
    """(broker, leader epoch), where the error was a wrong leader; from v16 on."""


class SteadyFetch(NamedTuple):
    """A request of a follower within its session, of v11, that forgets no partition."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, Iterator[tuple[int, int, int, int, int]]]]
    """Names, and of each partition its number, current leader epoch, fetch offset, log start offset
    and max_bytes."""


def steady_fetch(body: memoryview) -> SteadyFetch | None:
    """The request in a body, read in a few steps; None if it is any other, or does not parse."""
    try:
        replica_id, max_wait, min_bytes, max_bytes, isolation, session, epoch, topics = (
            _STEADY.unpack_from(body)
        )
        if replica_id < 0 or isolation or epoch <= 0 or topics < 0:
            return None
        at, found = _STEADY.size, []
        for _ in range(topics):
            start = at + 2
            at = start + _H.unpack_from(body, at)[0]
            (count,) = _I.unpack_from(body, at)
            end = at + 4 + count * _NAMED.size
            found.append((bytes(body[start:at]), _NAMED.iter_unpack(body[at + 4 : end])))
            at = end
        if _I.unpack_from(body, at)[0]:
            return None
    except struct.error:
        return None
    return SteadyFetch(replica_id, max_wait, min_bytes, max_bytes, session, epoch, found)


def parse_fetch(body: memoryview, version: int) -> FetchRequest:
    """The request in a body; of a partition that is named more than once the last one counts.

    Raises struct.error, IndexError or ValueError if it is malformed.
    """
    if version >= REPLICA_STATE:
        replica_id = CONSUMER_REPLICA_ID
        max_wait, min_bytes, max_bytes, isolation = _HEAD_AFTER_ID.unpack_from(body, 0)
        at = _HEAD_AFTER_ID.size
    else:
        replica_id, max_wait, min_bytes, max_bytes, isolation = _HEAD.unpack_from(body, 0)
        at = _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = struct.unpack_from(">ii", body, at)
        at += 8
    reader = _Reader(body, at, version >= FLEXIBLE)
    by_id = version >= BY_ID
    partitions: list[FetchPartition] = []
    for _ in range(reader.count()):
        topic, topic_id = reader.topic(by_id)
        partitions += [_partition(reader, topic, topic_id, version) for _ in range(reader.count())]
        reader.tags()
    forgotten: list[Key] = []
    rack = ""
    if version >= 7:
        for _ in range(reader.count()):
            topic, topic_id = reader.topic(by_id)
            forgotten += [
                key_of(TopicPartition(topic, reader.int32()), topic_id)
                for _ in range(reader.count())
            ]
            reader.tags()
    if version >= 11:
        rack = reader.string()
    if version >= REPLICA_STATE:
        replica_id = reader.replica_state()
    return FetchRequest(
        max(replica_id, CONSUMER_REPLICA_ID), max_wait, min_bytes, max_bytes, isolation,
        session_id, session_epoch, list({key_of(p.tp, p.topic_id): p for p in partitions}.values()),
        forgotten, rack, by_id,
    )  # fmt: skip


class _Reader:
    """A cursor that knows whether lengths are plain or compact."""

    __slots__ = ("at", "flexible", "left", "view")

    def __init__(self, view: memoryview, at: int, flexible: bool) -> None:
        self.view, self.at, self.flexible = view, at, flexible
        self.left = MAX_ELEMENTS

    def int32(self) -> int:
        (value,) = _I.unpack_from(self.view, self.at)
        self.at += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _Q.unpack_from(self.view, self.at)
        self.at += 8
        return int(value)

    def count(self) -> int:
        if self.flexible:
            value, self.at = read_uvarint(self.view, self.at)
            value -= 1
        else:
            value = self.int32()
        self.left = within(self.left, value)
        return value

    def string(self) -> str:
        if self.flexible:
            text, self.at = read_compact_string(self.view, self.at)
            return text
        (length,) = _H.unpack_from(self.view, self.at)
        start = self.at + 2
        self.at = start + max(length, 0)
        return str(self.view[start : self.at], "utf-8", "replace")

    def topic(self, by_id: bool) -> tuple[str, bytes]:
        """Reads a topic's name (with an empty id) or its id (with an empty name)."""
        if by_id:
            topic_id, self.at = read_id(self.view, self.at)
            return "", topic_id
        return self.string(), b""

    def tags(self) -> None:
        if self.flexible:
            self.at = skip_tags(self.view, self.at)

    def replica_state(self) -> int:
        """The replica's id in the request's tags, of which all others are skipped."""
        count, self.at = read_uvarint(self.view, self.at)
        replica_id = CONSUMER_REPLICA_ID
        if count > MAX_TAGS:
            raise ValueError(f"{count} tagged fields in one place, more than {MAX_TAGS}")
        for _ in range(count):
            tag, self.at = read_uvarint(self.view, self.at)
            size, self.at = read_uvarint(self.view, self.at)
            if tag == 1:
                (replica_id,) = _I.unpack_from(self.view, self.at)
            self.at += size
        return replica_id


def _partition(reader: _Reader, topic: str, topic_id: bytes, version: int) -> FetchPartition:
    index = reader.int32()
    epoch = max(reader.int32(), -1) if version >= 9 else -1
    offset = reader.int64()
    last_epoch = reader.int32() if version >= 12 else -1
    log_start = reader.int64() if version >= 5 else -1
    max_bytes = reader.int32()
    reader.tags()
    return FetchPartition(
        TopicPartition(topic, index), epoch, offset, last_epoch, log_start, max_bytes, topic_id
    )


def response_parts(
    version: int,
    error: int,
    session_id: int,
    partitions: Iterable[FetchedPartition],
    throttle_ms: int = 0,
    endpoints: list[NodeEndpoint] | None = None,
) -> list[Any]:
    """The body of an answer as parts to send in order: packed bytes, and each partition's
    `records` as given.
    """
    flexible = version >= FLEXIBLE
    by_id = version >= BY_ID
    topics: dict[str | bytes, list[FetchedPartition]] = {}
    for p in partitions:
        topics.setdefault(p.topic_id if by_id else p.tp.topic, []).append(p)
    out: list[Any] = []
    pending = bytearray(_I.pack(throttle_ms))
    if version >= 7:
        pending += _H.pack(error) + _I.pack(session_id)
    pending += uvarint(len(topics) + 1) if flexible else _I.pack(len(topics))
    for topic, group in topics.items():
        if isinstance(topic, bytes):
            pending += topic + uvarint(len(group) + 1)
        elif flexible:
            pending += compact_string(topic) + uvarint(len(group) + 1)
        else:
            name = topic.encode()
            pending += _H.pack(len(name)) + name + _I.pack(len(group))
        for p in group:
            pending += _partition_header(p, version, flexible)
            if p.size:
                out += (bytes(pending), p.records)
                pending = bytearray()
            if flexible:
                pending += _partition_tags(p)
        if flexible:
            pending += b"\0"
    if flexible:
        pending += endpoint_tags(endpoints or [])
    if pending:
        out.append(bytes(pending))
    return out


def _partition_header(p: FetchedPartition, version: int, flexible: bool) -> bytes:
    head = _ANSWER.pack(
        p.tp.partition, p.error, p.high_watermark, p.last_stable_offset, p.log_start_offset
    )
    if version < 5:
        head = head[:-8]
    if p.aborted is None:
        head += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        head += uvarint(len(p.aborted) + 1) if flexible else _I.pack(len(p.aborted))
        for producer_id, first_offset in p.aborted:
            head += _Q.pack(producer_id) + _Q.pack(first_offset) + (b"\0" if flexible else b"")
    if version >= 11:
        head += b"\xff\xff\xff\xff"  # no preferred read replica: followers serve no clients
    return head + (uvarint(p.size + 1) if flexible else _I.pack(p.size))


def _partition_tags(p: FetchedPartition) -> bytes:
    if p.diverging is None and p.leader is None:
        return b"\0"
    out = b""
    if p.diverging is not None:
        body = _IQ.pack(*p.diverging) + b"\0"
        out += b"\x00" + uvarint(len(body)) + body
    if p.leader is not None:
        out += leader_tag(1, p.leader)
    return uvarint((p.diverging is not None) + (p.leader is not None)) + out


def build_fetch(request: FetchRequest, version: int = 11) -> bytes:
    """The body of a follower's request, v7 to v11 (inter.broker.protocol.version 2.6: v11)."""
    out = bytearray(
        _HEAD.pack(
            request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes,
            request.isolation_level,
        )
    )  # fmt: skip
    out += struct.pack(">ii", request.session_id, request.session_epoch)
    topics: dict[str, list[FetchPartition]] = {}
    for p in request.partitions:
        topics.setdefault(p.tp.topic, []).append(p)
    out += _I.pack(len(topics))
    for topic, group in topics.items():
        name = topic.encode()
        out += _H.pack(len(name)) + name + _I.pack(len(group))
        for p in group:
            out += _I.pack(p.tp.partition)
            if version >= 9:
                out += _I.pack(p.current_leader_epoch)
            out += struct.pack(">qqi", p.fetch_offset, p.log_start_offset, p.max_bytes)
    gone: dict[str, list[int]] = {}
    for tp in request.forgotten:
        assert isinstance(tp, TopicPartition), "a follower names topics by their names"
        gone.setdefault(tp.topic, []).append(tp.partition)
    out += _I.pack(len(gone))
    for topic, indexes in gone.items():
        name = topic.encode()
        out += _H.pack(len(name)) + name + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    if version >= 11:
        rack = request.rack_id.encode()
        out += _H.pack(len(rack)) + rack
    return bytes(out)


class FetchAnswer(NamedTuple):
    error: int
    session_id: int
    partitions: list[FetchedPartition]


def parse_fetch_answer(body: memoryview, version: int = 11) -> FetchAnswer:
    """A leader's answer, v7 to v11; `records` of each partition is a memoryview into `body`."""
    error, session_id, topics = _ANSWERED.unpack_from(body, 4)
    at, left = 14, within(MAX_ELEMENTS, topics)
    out: list[FetchedPartition] = []
    for _ in range(topics):
        start = at + 2
        at = start + max(_H.unpack_from(body, at)[0], 0)
        topic = str(body[start:at], "utf-8", "replace")
        (partitions,) = _I.unpack_from(body, at)
        at, left = at + 4, within(left, partitions)
        for _ in range(partitions):
            index, code, hw, lso, log_start, aborted = _OF_PARTITION.unpack_from(body, at)
            at += _OF_PARTITION.size + 16 * max(aborted, 0) + (4 if version >= 11 else 0)
            size = max(_I.unpack_from(body, at)[0], 0)
            at += 4
            records = body[at : at + size]
            if len(records) != size:
                raise ValueError(f"an answer that ends inside the records of {topic}-{index}")
            at += size
            out.append(
                FetchedPartition(
                    TopicPartition(topic, index), code, hw, lso, log_start, records, size
                )
            )
    return FetchAnswer(error, session_id, out)
