"""The records of consumer groups in __consumer_offsets: keys and values in Kafka's own formats.

    key v3   group           value v0   group epoch, hash of its topics' metadata
    key v4   group           value v0   its topics' metadata: written by Kafka before 4.1
    key v5   group, member   value v0   the member's subscription; for the classic protocol, what it
                                        said in JoinGroup, as a tagged field
    key v6   group           value v0   the epoch of the target assignment
    key v7   group, member   value v0   the member's target
    key v8   group, member   value v0   the member's epoch, state and partitions
    key v16  group, regex    value v0   the topics that match a regular expression

A null value (a tombstone) deletes what the key names.  Values are in flexible versions.

Source: the schemas of Kafka's group coordinator (group-coordinator/src/main/resources).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from highwater.broker.coordinator.group.consumer.members import (
    Classic,
    Current,
    MemberState,
    Partitions,
    Resolved,
    Subscription,
)
from highwater.broker.coordinator.record_fields import (
    Fields,
    key_text,
    partitions,
    tags,
    text,
    texts,
)
from highwater.kafka.wire.varint import uvarint

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_METADATA_HASH = 0
"""The tag of the hash in a group's value."""
_CLASSIC = 0
"""The tag of what a member of the classic protocol has told, in a member's value."""
_PRESENT = b"\1"
"""Stands before a tagged struct that could be null."""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class EpochRecord:
    group_id: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class TopicsRecord:
    """Says only whether a group has the record; `metadata_hash` stands in its place."""

    group_id: str
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    group_id: str
    member_id: str
    value: Subscription | None


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
class RegexRecord:
    group_id: str
    regex: str
    value: Resolved | None


OfGroup = EpochRecord | TopicsRecord | TargetEpochRecord
OfMember = MemberRecord | TargetRecord | CurrentRecord
ConsumerRecord = OfGroup | OfMember | RegexRecord
CONSUMER_RECORDS: Final = (
    EpochRecord, TopicsRecord, MemberRecord, TargetEpochRecord, TargetRecord, CurrentRecord,
    RegexRecord,
)  # fmt: skip

# ---------------------------------------------------------------------------------- writing


def _encode_epoch(value: GroupEpoch) -> bytes:
    if not value.metadata_hash:
        return _INT32.pack(value.epoch) + b"\0"
    return _INT32.pack(value.epoch) + tags((_METADATA_HASH, _INT64.pack(value.metadata_hash)))


def _encode_member(value: Subscription) -> bytes:
    return b"".join(
        (
            text(value.instance_id),
            text(value.rack_id),
            text(value.client_id),
            text(value.client_host),
            texts(value.topics),
            text(value.regex or None),
            _INT32.pack(value.rebalance_timeout_ms),
            text(value.assignor),
            b"\0" if value.classic is None else _encode_classic(value.classic),
        )
    )


def _encode_classic(value: Classic) -> bytes:
    """The tagged fields of a member that uses the classic protocol."""
    session = _INT32.pack(value.session_timeout_ms)
    parts = [_PRESENT, session, uvarint(len(value.protocols) + 1)]
    for name, metadata in value.protocols:
        parts += (text(name), uvarint(len(metadata) + 1), metadata, b"\0")
    return tags((_CLASSIC, b"".join((*parts, b"\0"))))


def _encode_current(value: Current) -> bytes:
    return b"".join(
        (
            _INT32.pack(value.epoch),
            _INT32.pack(value.previous_epoch),
            bytes((value.state,)),
            partitions(value.assigned),
            partitions(value.revoking),
            b"\0",
        )
    )


def _encode_regex(value: Resolved) -> bytes:
    times = _INT64.pack(value.version) + _INT64.pack(value.timestamp_ms)
    return texts(value.topics) + times + b"\0"


def _encode_target(value: Partitions) -> bytes:
    return partitions(value) + b"\0"


def _encode_target_epoch(value: int) -> bytes:
    return _INT32.pack(value) + b"\0"


# ---------------------------------------------------------------------------------- reading


def _decode_epoch(fields: Fields) -> GroupEpoch:
    epoch = fields.number(_INT32)
    tagged = fields.tags().get(_METADATA_HASH)
    return GroupEpoch(epoch, 0 if tagged is None else int(_INT64.unpack(tagged)[0]))


def _decode_topics(fields: Fields) -> bytes:
    return fields.data


def _decode_member(fields: Fields) -> Subscription:
    return Subscription(
        fields.nullable(),
        fields.nullable(),
        fields.text(),
        fields.text(),
        tuple(sorted(set(fields.texts()))),
        fields.text(),
        fields.number(_INT32),
        fields.nullable(),
        _decode_classic(fields.tags().get(_CLASSIC)),
    )


def _decode_classic(data: bytes | None) -> Classic | None:
    if data is None:
        return None
    fields = Fields(data)
    if fields.take(1) != _PRESENT:
        return None
    session_timeout_ms = fields.number(_INT32)
    protocols = []
    for _ in range(fields.size()):
        protocols.append((fields.text(), fields.take(fields.size())))
        fields.tags()
    if not protocols:
        raise ValueError("a member of the classic protocol without protocols")
    return Classic(session_timeout_ms, tuple(protocols))


def _decode_current(fields: Fields) -> Current:
    epoch, previous = fields.number(_INT32), fields.number(_INT32)
    state = fields.take(1)[0]
    known = state in (0, 1, 2)
    return Current(
        epoch,
        previous,
        MemberState(state) if known else MemberState.UNKNOWN,
        fields.partitions(),
        fields.partitions(),
    )


def _decode_regex(fields: Fields) -> Resolved:
    return Resolved(fields.texts(), fields.number(_INT64), fields.number(_INT64))


def _decode_target_epoch(fields: Fields) -> int:
    return fields.number(_INT32)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of record: the names in its key after the group, and its value's codec."""

    make: Callable[..., ConsumerRecord]
    second: str
    encode: Callable[[Any], bytes]
    decode: Callable[[Fields], Any]


_KINDS: Final = {
    3: _Kind(EpochRecord, "", _encode_epoch, _decode_epoch),
    4: _Kind(TopicsRecord, "", lambda value: value, _decode_topics),
    5: _Kind(MemberRecord, "member_id", _encode_member, _decode_member),
    6: _Kind(TargetEpochRecord, "", _encode_target_epoch, _decode_target_epoch),
    7: _Kind(TargetRecord, "member_id", _encode_target, Fields.partitions),
    8: _Kind(CurrentRecord, "member_id", _encode_current, _decode_current),
    16: _Kind(RegexRecord, "regex", _encode_regex, _decode_regex),
}
_NUMBERS: Final = {kind.make: number for number, kind in _KINDS.items()}
KEYS: Final = frozenset(_KINDS)
"""The versions of keys that are read here."""


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    number = _NUMBERS[type(record)]
    kind = _KINDS[number]
    key = _INT16.pack(number) + key_text(record.group_id)
    if kind.second:
        key += key_text(getattr(record, kind.second))
    if record.value is None:
        return key, None
    if number == 4:
        return key, record.value  # type: ignore[return-value]
    return key, _INT16.pack(0) + kind.encode(record.value)


def decode(number: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """The record with a key of this version; raises ValueError, IndexError or struct.error."""
    kind = _KINDS[number]
    names = Fields(key, _INT16.size)
    named = [names.plain_text() for _ in range(2 if kind.second else 1)]
    if value is None:
        return kind.make(*named, None)
    if number == 4:
        return kind.make(*named, value)
    fields = Fields(value)
    version = fields.number(_INT16)
    if version:
        raise ValueError(f"value v{version} of a consumer group's record v{number}")
    return kind.make(*named, kind.decode(fields))
