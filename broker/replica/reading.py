"""The result of a read for a fetch, and KIP-595's check that the reader's log agrees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from highwater.kafka.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.log.parts import LogSlice
    from highwater.broker.replica.partition import Partition
    from highwater.kafka.wire.fetch import FetchedPartition, FetchPartition


class PartitionRead(NamedTuple):
    """The latest read of one partition of a fetch."""

    result: FetchedPartition
    at_once: bool
    """Whether this partition alone is reason enough to answer the fetch."""
    counted: int = 0
    """Bytes that count towards min_bytes."""
    segment: int | None = None
    """Base offset of the segment in which the fetch offset lay at the first read."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """One partition of a fetch: offsets as they stood at the read, and the batches to send."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    slice: LogSlice | None
    """None if the reader's log diverges."""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset), for read_committed."""
    diverging: tuple[int, int] | None = None


def diverging_end(partition: Partition, asked: FetchPartition) -> tuple[int, int] | None:
    """(epoch, end offset) at which the requester's log parts from this one; None if they agree, or
    if the request does not give the epoch of the last record.

    Raises ApiError: OFFSET_OUT_OF_RANGE like Kafka's Partition.readRecords if nothing is known of
    that epoch, and UNKNOWN_LEADER_EPOCH if it is later than this leader's own: then this leader was
    replaced while it stood still, and the client's metadata is just as old.  (Kafka answers
    OFFSET_OUT_OF_RANGE there too, and the client starts over.)
    """
    if asked.last_fetched_epoch < 0:
        return None
    if asked.last_fetched_epoch > partition.leader_epoch:
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    epoch, end = partition.epoch_end_offset(asked.last_fetched_epoch)
    if end < 0 or epoch < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return epoch, end
    return None


def slice_of(
    log: Log, asked: FetchPartition, max_bytes: int, limit: int, min_one: bool
) -> LogSlice:
    """The batches to send below `limit`, perhaps none.

    Raises ApiError: OFFSET_OUT_OF_RANGE, and UNKNOWN_SERVER_ERROR (as in Kafka) if a negative
    number of bytes is requested where there are some.  Raises OSError if the disk fails.
    """
    most = min(max_bytes, asked.max_bytes)
    piece = log.read(asked.fetch_offset, most, limit, min_one)
    if most < 0 and piece.available:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return piece


def counted_bytes(asked: FetchPartition, piece: LogSlice) -> int:
    """Bytes of a partition that count towards a fetch's min_bytes (DelayedFetch, case G).

    These are all bytes below the limit, at most the partition's max_bytes: Kafka sends as many,
    the last batch in part, while Highwater sends only whole batches.  Bytes that have no room in
    the answer count too, and so does all of its first batch, which is sent whatever its size.
    """
    return max(piece.size, min(piece.available, asked.max_bytes))


def in_older_segment(piece: LogSlice, first: int) -> bool:
    """Whether there is something to read, and the limit lies in a later segment than `first`, the
    segment of the fetch offset when the fetch came (DelayedFetch, case F)."""
    return piece.available > 0 and first < piece.limit_segment


def lowest_start(partition: Partition, live: Iterable[int]) -> int:
    """The low watermark: the least log start offset among the live replicas (DeleteRecords waits
    for it).
    """
    log = partition.leader_log()
    alive = set(live)
    starts = [f.log_start_offset for b, f in sorted(partition.followers.items()) if b in alive]
    return min([log.log_start_offset, *starts])
