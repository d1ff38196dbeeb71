"""Reads a coordinator's partition from its start, in slices that let other tasks run.

Records are replayed in the order of the log.  Records of a transaction (offset commits) count from
its marker on; those without a marker at the end are kept, for a later marker to decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from highwater.kafka.wire.records import BatchHeader, batches, marker_of, records_of_batch

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.log.parts import LogSlice
    from highwater.world.api import Disk

log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
RECORDS_A_TURN = 100

R = TypeVar("R")
Decode = Callable[[bytes | None, bytes | None], R | None]
Replay = Callable[[R, int], None]
"""Called with a record and its offset."""


class LoadError(Exception):
    """Raised if the log does not hold the records that its offsets promise."""


@dataclass(slots=True)
class Loaded(Generic[R]):
    count: int = 0
    open: dict[int, list[tuple[R, int]]] = field(default_factory=dict)
    """The records of undecided transactions with their offsets, by producer id."""


async def load(
    source: Log,
    end: int,
    disk: Disk,
    decode: Decode[R],
    replay: Replay[R],
    goes_on: Callable[[], bool],
) -> Loaded[R]:
    """Replays all records below `end`.  Ends early when `goes_on` returns False.

    Raises LoadError, OSError or ApiError.  `decode` returns None for a record to skip, and raises
    ValueError for one that cannot be read.
    """
    reader = BatchReplay(source.tp.topic, decode, replay)
    offset = source.log_start_offset
    while offset < end:
        piece = source.read(offset, SLICE_BYTES, end)
        if not piece.size:
            break  # compaction left nothing from here to the end
        data = await disk.run(lambda p=piece: _read(p))  # type: ignore[misc]
        before = offset
        for header in batches(data):
            if header.last_offset < offset:
                continue
            reader.batch(data, header)
            offset = header.last_offset + 1
            if reader.turn >= RECORDS_A_TURN:
                reader.turn = 0
                await trio.lowlevel.checkpoint()
            if not goes_on():
                return reader.loaded
        if offset == before:
            raise LoadError(f"{source.tp} cannot be read at offset {offset} of {end}")
    return reader.loaded


def _read(piece: LogSlice) -> bytes:
    return piece.file.read(piece.position, piece.size)


class BatchReplay(Generic[R]):
    """Replays the records of batches; transactional records are replayed at their marker."""

    def __init__(self, topic: str, decode: Decode[R], replay: Replay[R]) -> None:
        self.topic = topic
        self.decode = decode
        self.replay = replay
        self.loaded: Loaded[R] = Loaded()
        self.turn = 0

    def batch(self, data: bytes, header: BatchHeader) -> None:
        self.turn += header.record_count
        if header.is_control:
            marker = marker_of(data, header)
            if marker is not None:
                held = self.loaded.open.pop(header.producer_id, [])
                for once, offset in held if marker.commit else ():
                    self.replay(once, offset)
            return
        for raw in records_of_batch(data, header):
            self.loaded.count += 1
            try:
                record = self.decode(raw.key, raw.value)
            except ValueError as e:
                log.error("a record of %s at %d is passed over: %s", self.topic, raw.offset, e)
                continue
            if record is None:
                continue
            if header.is_transactional:
                self.loaded.open.setdefault(header.producer_id, []).append((record, raw.offset))
            else:
                self.replay(record, raw.offset)
