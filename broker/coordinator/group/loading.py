"""Reads a partition of __consumer_offsets from its start, in slices that give way to others.

A transactional commit (they may come from another broker of the cluster) counts from its marker on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from broker.coordinator.group.records import BadRecordError, GroupLogRecord, decode
from highwater.common.wire.records import BatchHeader, batches, marker_of, records_of_batch

if TYPE_CHECKING:
    from broker.log.log import Log
    from broker.log.parts import LogSlice
    from highwater.common.world.api import Disk

log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
RECORDS_A_TURN = 100


class LoadError(Exception):
    """The log does not give what its offsets promise."""


async def load(
    source: Log,
    end: int,
    disk: Disk,
    replay: Callable[[GroupLogRecord], None],
    goes_on: Callable[[], bool],
) -> int:
    """Replays all records below `end`; gives how many.  Ends early when `goes_on` says no.

    Raises LoadError, OSError or ApiError.
    """
    reader = _Reader(replay)
    offset = source.log_start_offset
    while offset < end:
        piece = source.read(offset, SLICE_BYTES, end)
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
                return reader.count
        if offset == before:
            raise LoadError(f"{source.tp} cannot be read at offset {offset} of {end}")
    return reader.count


def _read(piece: LogSlice) -> bytes:
    return piece.file.read(piece.position, piece.size)


class _Reader:
    """Records out of batches, transactional ones at their marker."""

    def __init__(self, replay: Callable[[GroupLogRecord], None]) -> None:
        self.replay = replay
        self.count = 0
        self.turn = 0
        self.open: dict[int, list[GroupLogRecord]] = {}

    def batch(self, data: bytes, header: BatchHeader) -> None:
        self.turn += header.record_count
        if header.is_control:
            marker = marker_of(data, header)
            if marker is not None:
                held = self.open.pop(header.producer_id, [])
                for once in held if marker.commit else ():
                    self.replay(once)
            return
        for raw in records_of_batch(data, header):
            self.count += 1
            try:
                record = decode(raw.key, raw.value)
            except BadRecordError as e:
                log.error("a record of __consumer_offsets at %d is passed over: %s", raw.offset, e)
                continue
            if record is None:
                continue
            if header.is_transactional:
                self.open.setdefault(header.producer_id, []).append(record)
            else:
                self.replay(record)
