"""The records of __share_group_state: keys and values in Kafka's own formats.

    key v0   group, topic id, partition   value v0   a snapshot: the whole state
    key v1   group, topic id, partition   value v0   an update: what a write has added since

A null value of v0 (a tombstone) says that the state is deleted.  Keys of unknown versions are
skipped.

Source: ShareSnapshotValue.json, ShareUpdateValue.json of Kafka's share coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from highwater.broker.coordinator.record_fields import Fields, key_text, tags
from highwater.broker.share.persister import NO_COUNT, SharePartitionKey, StateBatch
from highwater.kafka.wire.varint import uvarint

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_SNAPSHOT_KEY, _UPDATE_KEY = 0, 1
_SNAPSHOT = Struct(">hiiiqqq")
_UPDATE = Struct(">hiiq")
_BATCH = Struct(">qqbh")
_COMPLETE_COUNT: Final = 0
"""The tag of the count of records that are done."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    snapshot_epoch: int
    """One more than that of the snapshot before."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int
    """When it was written again, where that happened because nothing else was."""


@dataclass(frozen=True, slots=True)
class Update:
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    """-1 where it has not changed."""
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of a share-partition; without a value, its state is deleted."""

    key: SharePartitionKey
    value: Snapshot | Update | None


class BadRecordError(ValueError):
    """Raised for bytes that are no record of this topic."""


def encode(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    key, value = record.key, record.value
    version = _UPDATE_KEY if isinstance(value, Update) else _SNAPSHOT_KEY
    where = key_text(key.group) + key.topic_id + _INT32.pack(key.partition)
    head = _INT16.pack(version) + where
    if value is None:
        return head, None
    if isinstance(value, Update):
        fixed = _UPDATE.pack(0, value.snapshot_epoch, value.leader_epoch, value.start_offset)
    else:
        fixed = _SNAPSHOT.pack(
            0,
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.created_ms,
            value.written_ms,
        )
    return head, b"".join((fixed, *_batches(value.batches), _tagged(value)))


def _batches(batches: tuple[StateBatch, ...]) -> Iterator[bytes]:
    yield uvarint(len(batches) + 1)
    for batch in batches:
        yield _BATCH.pack(*batch) + b"\0"


def _tagged(value: Snapshot | Update) -> bytes:
    if value.delivery_complete_count == NO_COUNT:
        return tags()
    return tags((_COMPLETE_COUNT, _INT32.pack(value.delivery_complete_count)))


def decode(key: bytes | None, value: bytes | None) -> StateRecord | None:
    """None for a key of an unknown version; raises BadRecordError."""
    if key is None:
        raise BadRecordError("a record without a key")
    try:
        names = Fields(key)
        version = names.number(_INT16)
        if version not in (_SNAPSHOT_KEY, _UPDATE_KEY):
            return None
        group, topic_id = names.plain_text(), names.take(16)
        named = SharePartitionKey(group, topic_id, names.number(_INT32))
        if value is None:
            return None if version == _UPDATE_KEY else StateRecord(named, None)
        read = _read_update if version == _UPDATE_KEY else _read_snapshot
        return StateRecord(named, read(Fields(value)))
    except (StructError, IndexError, ValueError) as e:
        raise BadRecordError(str(e)) from e


def _read_snapshot(fields: Fields) -> Snapshot:
    version, snapshot, state, leader, start, created, written = _SNAPSHOT.unpack(
        fields.take(_SNAPSHOT.size)
    )
    _check(version)
    batches = _read_batches(fields)
    return Snapshot(snapshot, state, leader, start, _count(fields), batches, created, written)


def _read_update(fields: Fields) -> Update:
    version, snapshot, leader, start = _UPDATE.unpack(fields.take(_UPDATE.size))
    _check(version)
    batches = _read_batches(fields)
    return Update(snapshot, leader, start, _count(fields), batches)


def _check(version: int) -> None:
    if version:
        raise BadRecordError(f"value v{version} of a share-partition's state")


def _read_batches(fields: Fields) -> tuple[StateBatch, ...]:
    found = []
    for _ in range(fields.size()):
        found.append(StateBatch(*_BATCH.unpack(fields.take(_BATCH.size))))
        fields.tags()
    return tuple(found)


def _count(fields: Fields) -> int:
    tagged = fields.tags().get(_COMPLETE_COUNT)
    return NO_COUNT if tagged is None else int(_INT32.unpack(tagged)[0])
