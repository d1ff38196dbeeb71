"""The records of __consumer_offsets: keys and values in Kafka's own formats.

    key v0, v1   group, topic, partition   value v3   offset, leader epoch, metadata, commit time
    key v2       group                     value v3   protocol type, generation, protocol, leader,
                                                      since when in this state, members

A null value (a tombstone) deletes what the key names.  Older versions of values can be read.
Values are written in the newest version that inter.broker.protocol.version 2.6 knows; only a commit
with its own expiry (OffsetCommit v2-4) is written as value v1, which has a field for it.  The
records of the consumer protocol are in `consumer/records`, those of share groups in
`share/records`.  Keys of unknown versions (newer group types) are skipped.

Source: kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from highwater.broker.coordinator.group.consumer import records as consumer_records
from highwater.broker.coordinator.group.consumer.records import CONSUMER_RECORDS, ConsumerRecord
from highwater.broker.coordinator.group.share import records as share_records
from highwater.broker.coordinator.group.share.records import SHARE_RECORDS, ShareRecord
from highwater.kafka.types import TopicPartition

NO_TIMESTAMP = -1
NO_EPOCH = -1
_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_VERSION = Struct(">h")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset that a group has committed in one partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int = NO_TIMESTAMP
    expire_ms: int = NO_TIMESTAMP
    """-1: offsets.retention.minutes decides."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """One member of a stored generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """One generation of a group; without members the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    """When the state last changed (wall clock); -1 if the record is too old to say."""
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The record of a group; without a value, the group is gone."""

    group_id: str
    value: StoredGroup | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """The record of an offset; without a value, nothing is committed any more."""

    group_id: str
    tp: TopicPartition
    value: CommittedOffset | None


GroupLogRecord = GroupRecord | OffsetRecord | ConsumerRecord | ShareRecord


class BadRecordError(ValueError):
    """Raised for bytes that are no record of this topic."""


# ---------------------------------------------------------------------------------- writing


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def encode(record: GroupLogRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    if isinstance(record, CONSUMER_RECORDS):
        return consumer_records.encode(record)
    if isinstance(record, SHARE_RECORDS):
        return share_records.encode(record)
    if isinstance(record, GroupRecord):
        key = _VERSION.pack(_GROUP_KEY) + _string(record.group_id)
        return key, None if record.value is None else _encode_group(record.value)
    key = b"".join(
        (
            _VERSION.pack(1),
            _string(record.group_id),
            _string(record.tp.topic),
            _INT32.pack(record.tp.partition),
        )
    )
    return key, None if record.value is None else _encode_offset(record.value)


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_ms != NO_TIMESTAMP:
        return b"".join(
            (
                _VERSION.pack(1),
                _INT64.pack(value.offset),
                _string(value.metadata),
                _INT64.pack(value.commit_ms),
                _INT64.pack(value.expire_ms),
            )
        )
    return b"".join(
        (
            _VERSION.pack(3),
            _INT64.pack(value.offset),
            _INT32.pack(value.leader_epoch),
            _string(value.metadata),
            _INT64.pack(value.commit_ms),
        )
    )


def _encode_group(value: StoredGroup) -> bytes:
    parts = [
        _VERSION.pack(3),
        _string(value.protocol_type),
        _INT32.pack(value.generation),
        _string(value.protocol),
        _string(value.leader),
        _INT64.pack(value.state_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


# ---------------------------------------------------------------------------------- reading


class _Reader:
    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, kind: Struct) -> int:
        (value,) = kind.unpack_from(self.data, self.position)
        self.position += kind.size
        return int(value)

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise BadRecordError(f"a field of {size} bytes at {self.position}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def nullable(self) -> str | None:
        size = self.number(_INT16)
        return None if size < 0 else self.take(size).decode()

    def string(self) -> str:
        return self.nullable() or ""

    def blob(self) -> bytes:
        size = self.number(_INT32)
        return b"" if size < 0 else self.take(size)


def decode(key: bytes | None, value: bytes | None) -> GroupLogRecord | None:
    """None for a key of an unknown version; raises BadRecordError."""
    if key is None:
        raise BadRecordError("a record without a key")
    try:
        reader = _Reader(key)
        version = reader.number(_VERSION)
        if version in _OFFSET_KEYS:
            group_id, topic = reader.string(), reader.string()
            tp = TopicPartition(topic, reader.number(_INT32))
            return OffsetRecord(group_id, tp, None if value is None else _decode_offset(value))
        if version == _GROUP_KEY:
            group_id = reader.string()
            return GroupRecord(group_id, None if value is None else _decode_group(value))
        if version in consumer_records.KEYS:
            return consumer_records.decode(version, key, value)
        if version in share_records.KEYS:
            return share_records.decode(version, key, value)
    except BadRecordError:
        raise
    except (StructError, ValueError, IndexError) as e:
        raise BadRecordError(str(e)) from e
    return None


def _decode_offset(data: bytes) -> CommittedOffset:
    reader = _Reader(data)
    version = reader.number(_VERSION)
    if not 0 <= version <= 3:
        raise BadRecordError(f"value v{version} of a committed offset")
    offset = reader.number(_INT64)
    epoch = reader.number(_INT32) if version == 3 else NO_EPOCH
    metadata = reader.string()
    commit_ms = reader.number(_INT64)
    expire_ms = reader.number(_INT64) if version == 1 else NO_TIMESTAMP
    return CommittedOffset(offset, epoch, metadata, commit_ms, expire_ms)


def _decode_group(data: bytes) -> StoredGroup:
    reader = _Reader(data)
    version = reader.number(_VERSION)
    if not 0 <= version <= 3:
        raise BadRecordError(f"value v{version} of a group")
    protocol_type, generation = reader.string(), reader.number(_INT32)
    protocol, leader = reader.nullable(), reader.nullable()
    state_ms = reader.number(_INT64) if version >= 2 else NO_TIMESTAMP
    count = reader.number(_INT32)
    members = tuple(_decode_member(reader, version) for _ in range(count))
    return StoredGroup(protocol_type, generation, protocol, leader, state_ms, members)


def _decode_member(reader: _Reader, version: int) -> StoredMember:
    member_id = reader.string()
    instance_id = reader.nullable() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_ms = reader.number(_INT32) if version >= 1 else -1
    session_ms = reader.number(_INT32)
    if version < 1:
        rebalance_ms = session_ms
    subscription, assignment = reader.blob(), reader.blob()
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_ms,
        session_ms,
        subscription,
        assignment,
    )


def subscribed_topics(subscription: bytes) -> tuple[str, ...] | None:
    """The topics in a consumer's subscription (all versions begin like v0); None if it cannot be
    read.
    """
    try:
        reader = _Reader(subscription)
        reader.number(_VERSION)
        return tuple(reader.string() for _ in range(reader.number(_INT32)))
    except (StructError, UnicodeDecodeError, BadRecordError):
        return None
