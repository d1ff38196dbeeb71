"""The records of __transaction_state: keys and values in Kafka's own formats.

    key v0    transactional id
    value v0  producer id, epoch, time-out, state, partitions by topic, last update, start

A null value (a tombstone) means that the id has expired.  Value v1, a flexible version of v0, is
read but not written.

Source: kafka.coordinator.transaction.TransactionLog, TransactionLogValue.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from struct import error as StructError

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.varint import read_compact_string, read_uvarint

NO_TIMESTAMP = -1
NO_ID = -1
NO_EPOCH = -1
_VERSION = Struct(">h")
_HEAD = Struct(">hqhib")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_TIMES = Struct(">qq")


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
    parts = [_HEAD.pack(0, value.producer_id, value.epoch, value.timeout_ms, value.state.value)]
    topics: dict[str, list[int]] = {}
    for tp in value.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    parts.append(_INT32.pack(-1 if value.state is State.EMPTY else len(topics)))
    for topic, indexes in topics.items():
        parts += (_string(topic), _INT32.pack(len(indexes)), *map(_INT32.pack, indexes))
    parts.append(_TIMES.pack(value.updated_ms, value.started_ms))
    return key, b"".join(parts)


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
    return StoredTransaction(
        producer_id, epoch, timeout_ms, State(state), partitions, updated_ms, started_ms
    )


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
