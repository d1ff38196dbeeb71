"""A broker's disk, read from outside: segments, epoch files, log end offsets, and logs that became
shorter.

It is safe to read while the broker runs: segments are append-only, and an incomplete batch is left
out.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from struct import error as struct_error
from typing import Any

from highwater.kafka.errors import ApiError
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import records
from highwater.verdict.history import LineLog, encode_line

_BATCH_HEADER = 61


@dataclass(frozen=True, slots=True)
class StoredRecord:
    offset: int
    leader_epoch: int
    key: str | None
    value: str | None
    producer_id: int
    producer_epoch: int
    sequence: int


def partition_dirs(data_dirs: list[Path]) -> Iterator[tuple[TopicPartition, Path]]:
    """The partitions in a broker's log directories; those being deleted are left out."""
    for data in data_dirs:
        for folder in sorted(data.iterdir()) if data.is_dir() else []:
            topic, _, number = folder.name.rpartition("-")
            if folder.is_dir() and topic and number.isdigit():
                yield TopicPartition(topic, int(number)), folder


def find_partition(data_dirs: list[Path], tp: TopicPartition) -> Path | None:
    for data in data_dirs:
        if (data / str(tp)).is_dir():
            return data / str(tp)
    return None


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def _whole_batches(data: bytes) -> Iterator[records.BatchHeader]:
    try:
        for header in records.batches(data):
            if header.position + header.size > len(data):
                return
            yield header
    except (ApiError, ValueError, struct_error):
        return  # a torn tail, or one still being written


def log_end_offset(folder: Path) -> int:
    """The offset after the last whole batch on disk; for an empty segment, its base offset."""
    found = segments(folder)
    if not found:
        return 0
    end = int(found[-1].stem)
    for header in _whole_batches(found[-1].read_bytes()):
        end = header.last_offset + 1
    return end


def epoch_entries(folder: Path) -> list[tuple[int, int]]:
    """(leader epoch, start offset) of leader-epoch-checkpoint: a version, a count, and the
    entries."""
    try:
        lines = (folder / "leader-epoch-checkpoint").read_text().split("\n")
    except OSError:
        return []
    entries = []
    for line in lines[2:]:
        epoch, _, start = line.strip().partition(" ")
        if epoch.lstrip("-").isdigit() and start.isdigit():
            entries.append((int(epoch), int(start)))
    return entries


def stored_records(folder: Path) -> Iterator[StoredRecord]:
    """Every record of a replica's segments, except control batches."""
    for segment in segments(folder):
        data = segment.read_bytes()
        for header in _whole_batches(data):
            if header.is_control:
                continue
            for record in records.records_of_batch(data, header):
                idempotent = header.base_sequence >= 0
                index = record.offset - header.base_offset
                yield StoredRecord(
                    record.offset,
                    header.partition_leader_epoch,
                    _text(record.key),
                    _text(record.value),
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence + index if idempotent else -1,
                )


Logs = dict[TopicPartition, dict[int, dict[int, Any]]]
"""Partition -> broker -> offset -> (leader epoch, value)."""
EpochFiles = dict[tuple[int, TopicPartition], list[tuple[int, int]]]
"""(Broker, partition) -> (leader epoch, start offset)."""


def copy_records(
    data_dirs: Mapping[int, list[Path]], topics: Collection[str], folder: Path
) -> tuple[Logs, EpochFiles]:
    """Writes every replica's records and epochs to FOLDER/records.jsonl and epochs.jsonl."""
    logs: Logs = {}
    files: EpochFiles = {}
    with (
        (folder / "records.jsonl").open("wb") as records,
        (folder / "epochs.jsonl").open("wb") as epochs,
    ):
        for number, dirs in data_dirs.items():
            for tp, path in partition_dirs(dirs):
                if tp.topic not in topics:
                    continue
                place = {"broker": number, "topic": tp.topic, "partition": tp.partition}
                held = logs.setdefault(tp, {}).setdefault(number, {})
                for record in stored_records(path):
                    records.write(encode_line({**place, **asdict(record)}))
                    held[record.offset] = (record.leader_epoch, record.value)
                files[number, tp] = epoch_entries(path)
                for epoch, start in files[number, tp]:
                    epochs.write(encode_line({**place, "epoch": epoch, "start_offset": start}))
    return logs, files


def _text(data: Any) -> str | None:
    return bytes(data).decode("utf-8", "backslashreplace") if data is not None else None


class SizeWitness:
    """Looks at the size of every segment 50 times a second, in a thread: a log that became shorter
    was truncated.

    A vanished segment counts with its whole size where no later one of its partition is left
    (truncation removes from the end, retention from the start).
    """

    def __init__(self, brokers: dict[int, list[Path]], log: LineLog, every_s: float = 0.02) -> None:
        self.truncated_bytes = 0
        self.by_broker: dict[int, int] = {}
        self._brokers = brokers
        self._log = log
        self._every_s = every_s
        self._sizes: dict[tuple[int, TopicPartition, str], int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sizes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.look()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.look()

    def look(self) -> None:
        found: dict[tuple[int, TopicPartition, str], int] = {}
        for number, data_dirs in self._brokers.items():
            with contextlib.suppress(OSError):  # a folder may vanish at any moment
                for tp, folder in partition_dirs(data_dirs):
                    for segment in segments(folder):
                        found[number, tp, segment.name] = segment.stat().st_size
        last: dict[tuple[int, TopicPartition], str] = {}
        for number, tp, name in found:
            last[number, tp] = max(name, last.get((number, tp), ""))
        for place, was in self._sizes.items():
            size = found.get(place)
            newest = last.get(place[:2])
            if size is None and newest is not None and newest > place[2]:
                continue  # deleted by retention
            if size is None and newest is None:
                continue  # the whole partition is gone
            if (size or 0) < was:
                self._shorter(place, was, size or 0)
        self._sizes = found

    def _shorter(self, place: tuple[int, TopicPartition, str], was: int, size: int) -> None:
        number, tp, name = place
        self.truncated_bytes += was - size
        self.by_broker[number] = self.by_broker.get(number, 0) + was - size
        self._log.write(
            t_ns=time.monotonic_ns(),
            broker=number,
            topic=tp.topic,
            partition=tp.partition,
            segment=name,
            size=size,
            was=was,
        )
