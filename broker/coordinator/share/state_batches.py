"""Batches of a share-partition's state that may overlap, made one list.

Of two batches that name a record, the one with the higher delivery count says how the record is,
and with equal counts the one with the higher state: available, acknowledged, archived.  A record
only ever goes that way, so the order in which writes come does not matter.

Source: PersisterStateBatchCombiner of Kafka's share coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from highwater.broker.share.persister import StateBatch


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches from the start offset on (all, if it is -1): in order, without overlaps, as few
    as possible.
    """
    kept = sorted(
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batch in batches
        if batch.last_offset >= max(batch.first_offset, start_offset)
    )
    edges = sorted({b.first_offset for b in kept} | {b.last_offset + 1 for b in kept})
    found: list[StateBatch] = []
    open_: list[tuple[int, int, int]] = []
    position = 0
    for first, end in pairwise(edges):
        while position < len(kept) and kept[position].first_offset == first:
            batch = kept[position]
            heappush(open_, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            position += 1
        while open_ and open_[0][2] < first:
            heappop(open_)
        if open_:
            count, state, _ = open_[0]
            _add(found, StateBatch(first, end - 1, -state, -count))
    return tuple(found)


def _add(found: list[StateBatch], batch: StateBatch) -> None:
    last = found[-1] if found else None
    if last is not None and last[1:] == (batch.first_offset - 1, *batch[2:]):
        found[-1] = last._replace(last_offset=batch.last_offset)
    else:
        found.append(batch)
