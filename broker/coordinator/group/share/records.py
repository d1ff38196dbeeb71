"""The records of share groups in __consumer_offsets: keys and values in Kafka's own formats.

    key v10  group, member   value v0   the member's subscription
    key v11  group           value v0   group epoch, hash of its topics' metadata
    key v12  group           value v0   the epoch of the target assignment
    key v13  group, member   value v0   the member's target
    key v14  group, member   value v0   the member's epoch, state and partitions
    key v15  group           value v0   the topics whose state is being initialized, is initialized,
                                        or is being deleted

A null value (a tombstone) deletes what the key names.  Values are in flexible versions.

Source: the schemas of Kafka's group coordinator (group-coordinator/src/main/resources).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from highwater.broker.coordinator.group.consumer.members import (
    Current,
    MemberState,
    Partitions,
    Subscription,
)
from highwater.broker.coordinator.group.consumer.records import GroupEpoch
from highwater.broker.coordinator.record_fields import Fields, key_text, partitions, text, texts
from highwater.kafka.wire.varint import uvarint

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_EPOCH = Struct(">iq")
_CURRENT = Struct(">iib")


@dataclass(frozen=True, slots=True)
class StateTopics:
    """Topics by their ids, with partitions where the state is not deleted; `names` has those of
    all."""

    initializing: Partitions = field(default_factory=dict)
    initialized: Partitions = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemberRecord:
    group_id: str
    member_id: str
    value: Subscription | None


@dataclass(frozen=True, slots=True)
class EpochRecord:
    group_id: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    group_id: str
    value: int | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    group_id: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    group_id: str
    member_id: str
    value: Current | None


@dataclass(frozen=True, slots=True)
class StateRecord:
    group_id: str
    value: StateTopics | None


ShareRecord = (
    MemberRecord | EpochRecord | TargetEpochRecord | TargetRecord | CurrentRecord | StateRecord
)
SHARE_RECORDS: Final = (
    MemberRecord, EpochRecord, TargetEpochRecord, TargetRecord, CurrentRecord, StateRecord,
)  # fmt: skip

# ---------------------------------------------------------------------------------- writing


def _encode_member(value: Subscription) -> bytes:
    told = text(value.rack_id), text(value.client_id), text(value.client_host), texts(value.topics)
    return b"".join((*told, b"\0"))


def _encode_epoch(value: GroupEpoch) -> bytes:
    return _EPOCH.pack(value.epoch, value.metadata_hash) + b"\0"


def _encode_target_epoch(value: int) -> bytes:
    return _INT32.pack(value) + b"\0"


def _encode_target(value: Partitions) -> bytes:
    return partitions(value) + b"\0"


def _encode_current(value: Current) -> bytes:
    head = _CURRENT.pack(value.epoch, value.previous_epoch, value.state)
    return b"".join((head, partitions(value.assigned), b"\0"))


def _encode_state(value: StateTopics) -> bytes:
    parts = []
    for found in (value.initializing, value.initialized):
        parts.append(uvarint(len(found) + 1))
        for topic_id, numbers in found.items():
            parts += (topic_id, text(value.names[topic_id]), uvarint(len(numbers) + 1))
            parts += (_INT32.pack(number) for number in sorted(numbers))
            parts.append(b"\0")
    parts.append(uvarint(len(value.deleting) + 1))
    for topic_id in sorted(value.deleting):
        parts += (topic_id, text(value.names[topic_id]), b"\0")
    return b"".join((*parts, b"\0"))


# ---------------------------------------------------------------------------------- reading


def _decode_member(fields: Fields) -> Subscription:
    rack_id, client_id, client_host = fields.nullable(), fields.text(), fields.text()
    topics = tuple(sorted(set(fields.texts())))
    return Subscription(None, rack_id, client_id, client_host, topics)


def _decode_epoch(fields: Fields) -> GroupEpoch:
    return GroupEpoch(fields.number(_INT32), fields.number(_INT64))


def _decode_target_epoch(fields: Fields) -> int:
    return fields.number(_INT32)


def _decode_current(fields: Fields) -> Current:
    epoch, previous, state = _CURRENT.unpack(fields.take(_CURRENT.size))
    known = MemberState.STABLE if state == MemberState.STABLE else MemberState.UNKNOWN
    return Current(epoch, previous, known, fields.partitions())


def _decode_state(fields: Fields) -> StateTopics:
    names: dict[bytes, str] = {}
    initializing, initialized = (_topics(fields, names) for _ in range(2))
    deleting = []
    for _ in range(fields.size()):
        topic_id = fields.take(16)
        names[topic_id] = fields.text()
        fields.tags()
        deleting.append(topic_id)
    return StateTopics(initializing, initialized, frozenset(deleting), names)


def _topics(fields: Fields, names: dict[bytes, str]) -> Partitions:
    found = {}
    for _ in range(fields.size()):
        topic_id = fields.take(16)
        names[topic_id] = fields.text()
        found[topic_id] = frozenset(fields.number(_INT32) for _ in range(fields.size()))
        fields.tags()
    return found


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of record: whether its key names a member, and its value's codec."""

    make: Callable[..., ShareRecord]
    of_member: bool
    encode: Callable[[Any], bytes]
    decode: Callable[[Fields], Any]


_KINDS: Final = {
    10: _Kind(MemberRecord, True, _encode_member, _decode_member),
    11: _Kind(EpochRecord, False, _encode_epoch, _decode_epoch),
    12: _Kind(TargetEpochRecord, False, _encode_target_epoch, _decode_target_epoch),
    13: _Kind(TargetRecord, True, _encode_target, Fields.partitions),
    14: _Kind(CurrentRecord, True, _encode_current, _decode_current),
    15: _Kind(StateRecord, False, _encode_state, _decode_state),
}
_NUMBERS: Final = {kind.make: number for number, kind in _KINDS.items()}
KEYS: Final = frozenset(_KINDS)
"""The versions of keys that are read here."""


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    number = _NUMBERS[type(record)]
    kind = _KINDS[number]
    key = _INT16.pack(number) + key_text(record.group_id)
    if kind.of_member:
        key += key_text(record.member_id)  # type: ignore[union-attr]
    return key, None if record.value is None else _INT16.pack(0) + kind.encode(record.value)


def decode(number: int, key: bytes, value: bytes | None) -> ShareRecord:
    """The record with a key of this version; raises ValueError, IndexError or struct.error."""
    kind = _KINDS[number]
    names = Fields(key, _INT16.size)
    named = [names.plain_text() for _ in range(2 if kind.of_member else 1)]
    if value is None:
        return kind.make(*named, None)
    fields = Fields(value)
    version = fields.number(_INT16)
    if version:
        raise ValueError(f"value v{version} of a share group's record v{number}")
    return kind.make(*named, kind.decode(fields))
