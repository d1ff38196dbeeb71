"""The records of __transaction_state: keys and values in Kafka's own formats.

    key v0    transactional id
    value v0  producer id, epoch, time-out, state, partitions by topic, last update, start
    value v1  the same in flexible form, and in tagged fields what transaction.version 2 needs

A null value (a tombstone) means that the id has expired.  v1 is written only where a tagged field
has a value, so that brokers that know only v0 read all other transactions.

Source: kafka.coordinator.transaction.TransactionLog, TransactionLogValue.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from struct import error as StructError

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.varint import (
    compact_string,
    read_compact_string,
    read_uvarint,
    uvarint,
)

NO_TIMESTAMP = -1
NO_ID = -1
NO_EPOCH = -1
_VERSION = Struct(">h")
_HEAD = Struct(">hqhib")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_TIMES = Struct(">qq")
_INT64 = Struct(">q")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = range(3)  # tags

EPOCH_BUMPED = 2
"""The transaction.version of clients whose every EndTxn raises the epoch (KIP-890, part 2)."""


class State(Enum):
    """The states, with the numbers that stand for them in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name in DescribeTransactions."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """The stored state of a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    updated_ms: int = NO_TIMESTAMP
    started_ms: int = NO_TIMESTAMP
    last_producer_id: int = NO_ID
    """The producer id (and `last_epoch`) before the last InitProducerId.  The record has no field
    for them, so a retry after a change of coordinator does not find them."""
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    """The producer id before this one, where the last end of a transaction changed it."""
    next_producer_id: int = NO_ID
    """The producer id in which the next transaction begins; the epochs of this one are used up."""
    client_version: int = 0
    """The transaction.version of the client: EPOCH_BUMPED, or 0 for any lower one."""

    @property
    def is_plain(self) -> bool:
        """Whether v0 of the value can hold it."""
        ids = self.previous_producer_id, self.next_producer_id
        return ids == (NO_ID, NO_ID) and self.client_version == 0


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The record of a transactional id; without a value, the id has expired."""

    transactional_id: str
    value: StoredTransaction | None


class BadRecordError(ValueError):
    """Raised for bytes that are no record of this topic."""


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    key = _VERSION.pack(0) + _string(record.transactional_id)
    value = record.value
    if value is None:
        return key, None
    version = 0 if value.is_plain else 1
    head = _HEAD.pack(version, value.producer_id, value.epoch, value.timeout_ms, value.state.value)
    times = _TIMES.pack(value.updated_ms, value.started_ms)
    topics: dict[str, list[int]] = {}
    for tp in value.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    if version == 0:
        count = _INT32.pack(-1 if value.state is State.EMPTY else len(topics))
        parts = [
            part
            for topic, indexes in topics.items()
            for part in (_string(topic), _INT32.pack(len(indexes)), *map(_INT32.pack, indexes))
        ]
        return key, b"".join((head, count, *parts, times))
    return key, b"".join((head, *_flexible(value.state, topics), times, _tagged(value)))


def _flexible(state: State, topics: Mapping[str, Sequence[int]]) -> Iterator[bytes]:
    yield uvarint(0 if state is State.EMPTY else len(topics) + 1)
    for topic, indexes in topics.items():
        yield compact_string(topic) + uvarint(len(indexes) + 1)
        yield from map(_INT32.pack, indexes)
        yield uvarint(0)  # no tagged fields


def _tagged(value: StoredTransaction) -> bytes:
    fields: list[tuple[int, bytes]] = []
    if value.previous_producer_id != NO_ID:
        fields.append((_PREVIOUS_ID, _INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_ID:
        fields.append((_NEXT_ID, _INT64.pack(value.next_producer_id)))
    if value.client_version:
        fields.append((_CLIENT_VERSION, _INT16.pack(value.client_version)))
    return uvarint(len(fields)) + b"".join(
        uvarint(tag) + uvarint(len(data)) + data for tag, data in fields
    )


def decode(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """None for a key of an unknown version; raises BadRecordError."""
    if key is None:
        raise BadRecordError("a record without a key")
    try:
        (version,) = _VERSION.unpack_from(key)
        if version != 0:
            return None
        (size,) = _INT16.unpack_from(key, 2)
        transactional_id = key[4 : 4 + size].decode()
        return TransactionRecord(transactional_id, None if value is None else _decode(value))
    except (StructError, IndexError, ValueError) as e:
        raise BadRecordError(str(e)) from e


def _decode(data: bytes) -> StoredTransaction:
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data)
    if version not in (0, 1):
        raise BadRecordError(f"value v{version} of a transaction")
    read = _read_flexible if version else _read_plain
    partitions, at = read(memoryview(data), _HEAD.size)
    updated_ms, started_ms = _TIMES.unpack_from(data, at)
    tags = _read_tagged(memoryview(data), at + _TIMES.size) if version else {}
    return StoredTransaction(
        producer_id,
        epoch,
        timeout_ms,
        State(state),
        partitions,
        updated_ms,
        started_ms,
        previous_producer_id=_number(tags, _PREVIOUS_ID, NO_ID),
        next_producer_id=_number(tags, _NEXT_ID, NO_ID),
        client_version=EPOCH_BUMPED if _number(tags, _CLIENT_VERSION, 0) >= EPOCH_BUMPED else 0,
    )


def _read_tagged(data: memoryview, at: int) -> dict[int, bytes]:
    found = {}
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if at + size > len(data):
            raise BadRecordError("a tagged field beyond the end")
        found[tag] = bytes(data[at : at + size])
        at += size
    return found


def _number(tags: Mapping[int, bytes], tag: int, missing: int) -> int:
    return int.from_bytes(tags[tag], signed=True) if tag in tags else missing


def _read_plain(data: memoryview, at: int) -> tuple[tuple[TopicPartition, ...], int]:
    found = []
    (topics,) = _INT32.unpack_from(data, at)
    at += 4
    for _ in range(topics):
        (size,) = _INT16.unpack_from(data, at)
        topic = str(data[at + 2 : at + 2 + size], "utf-8")
        (count,) = _INT32.unpack_from(data, at + 2 + size)
        at += 6 + size
        for _ in range(count):
            found.append(TopicPartition(topic, _INT32.unpack_from(data, at)[0]))
            at += 4
    return tuple(found), at


def _read_flexible(data: memoryview, at: int) -> tuple[tuple[TopicPartition, ...], int]:
    found = []
    topics, at = read_uvarint(data, at)
    for _ in range(topics - 1):
        topic, at = read_compact_string(data, at)
        count, at = read_uvarint(data, at)
        for _ in range(count - 1):
            found.append(TopicPartition(topic, _INT32.unpack_from(data, at)[0]))
            at += 4
        at += 1  # no tagged fields
    return tuple(found), at
