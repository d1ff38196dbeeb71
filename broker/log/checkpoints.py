"""The small text files of a log directory, as Kafka writes them.

Checkpoints are a version, a count, and a line for each entry:

    recovery-point-offset-checkpoint     all below is on the disk (fsync), and needs no check
    replication-offset-checkpoint        high watermarks
    log-start-offset-checkpoint          where DeleteRecords or retention moved a log's start
    cleaner-offset-checkpoint            where compaction has reached
    <partition>/leader-epoch-checkpoint  the first offset of each leader epoch

`meta.properties` names the directory's owner; `.kafka_cleanshutdown` exists after a shutdown that
flushed everything, and is removed as soon as it is seen.

This module knows only the formats: bytes in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from highwater.kafka.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

_VERSION = 0


class MalformedFileError(ValueError):
    """A checkpoint that neither Kafka nor this broker would have written."""


def _encode_lines(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(body)), *body)).encode()


def _decode_lines(data: bytes) -> list[list[str]]:
    """The entries, split at blanks.  An empty file has none: Kafka creates the file first.

    The count, or the missing end of the last line, reveals a file that a power loss cut short.
    """
    if not data:
        return []
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedFileError("it is not text") from error
    if len(lines) < 2 or not data.endswith(b"\n"):
        raise MalformedFileError("its end is missing")
    if lines[0] != str(_VERSION):
        raise MalformedFileError(f"version {lines[0]!r} is unknown")
    entries = [line.split() for line in lines[2:]]
    if not lines[1].isdigit() or int(lines[1]) != len(entries):
        raise MalformedFileError(f"it says {lines[1]!r} entries and has {len(entries)}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """One line, `topic partition offset`, for each; sorted by name."""
    return _encode_lines(
        f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Raises MalformedFileError."""
    offsets = {}
    for entry in _decode_lines(data):
        try:
            topic, partition, offset = entry
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise MalformedFileError(f"the line {' '.join(entry)!r} is no offset") from error
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """One line, `epoch startOffset`, for each."""
    return _encode_lines(f"{epoch} {start}" for epoch, start in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Raises MalformedFileError."""
    entries = []
    for entry in _decode_lines(data):
        try:
            epoch, start = map(int, entry)
        except ValueError as error:
            raise MalformedFileError(f"the line {' '.join(entry)!r} is no epoch") from error
        if epoch < 0 or start < 0:
            raise MalformedFileError(f"the line {' '.join(entry)!r} is no epoch")
        entries.append((epoch, start))
    return entries


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """A Java properties file (of plain keys and values)."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Keys and values as they stand; comments are left out."""
    properties = {}
    for line in data.decode(errors="replace").splitlines():
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            key, _, value = text.partition("=")
            properties[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return properties


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The content of `.kafka_cleanshutdown` since KIP-966."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
