"""The batches that a share fetch has read, as their headers say.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from highwater.broker.share.acquisition import LogBatch
from highwater.kafka.wire.records import BatchHeader


def log_batches(
    headers: Iterable[BatchHeader], aborted: Iterable[tuple[int, int]] = ()
) -> list[LogBatch]:
    """The batches; `aborted` has producer id and first offset of each aborted transaction.

    A transaction goes from its first offset to its producer's next control batch.
    """
    to_come = sorted(((first, producer) for producer, first in aborted), reverse=True)
    open_ones: set[int] = set()
    found = []
    for header in headers:
        while to_come and to_come[-1][0] <= header.last_offset:
            open_ones.add(to_come.pop()[1])
        if header.is_control:
            open_ones.discard(header.producer_id)
        gone = header.is_transactional and header.producer_id in open_ones
        found.append(LogBatch(header.base_offset, header.last_offset, gone))
    return found


def spanned(headers: Sequence[BatchHeader], first: int, last: int) -> tuple[int, int]:
    """Position and size of the batches that hold the records from `first` to `last`."""
    within = [h for h in headers if h.last_offset >= first and h.base_offset <= last]
    if not within:
        return headers[0].position, 0
    end = within[-1].position + within[-1].size
    return within[0].position, end - within[0].position
