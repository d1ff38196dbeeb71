"""The offset map: for each key of the dirty section, the offset of its last record.

log.cleaner.dedupe.buffer.size bounds its memory, so a log with more keys than fit is cleaned in
several rounds, each a little further.  Kafka stores 24 bytes an entry (an MD5 and an offset) in one
array; a dict is an order of magnitude faster here, and its entries are larger, so it holds fewer:
`ENTRY_BYTES` counts key, number, their places in the dict, and room for its growth.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from highwater.broker.log.cleaner.compacted_records import beyond_batch, key_id, load_keys, scan
from highwater.kafka.wire.records import BatchHeader

ENTRY_BYTES = 240
MISSING = -1


def capacity_for(buffer_bytes: int, load_factor: float) -> int:
    """The number of keys for a buffer of that size; at least one, or no log would be cleaned."""
    return max(1, int(buffer_bytes // ENTRY_BYTES * load_factor))


class OffsetMap:
    """Filled once, in order of the log, and then read."""

    def __init__(self, capacity: int, first_offset: int) -> None:
        self.capacity = capacity
        self.first_offset = first_offset
        """The start of the dirty section."""
        self.latest = -1
        """The last offset that the map covers."""
        self._offsets: dict[bytes, int] = {}
        self._survivors: array[int] | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        return len(self._offsets) / self.capacity

    def load(self, payload: bytes, header: BatchHeader) -> bool:
        """Takes the keys of a batch; False if the map was full before its end."""
        offsets = self._offsets
        if len(offsets) + header.record_count <= self.capacity:
            count, base, last = header.record_count, header.base_offset, header.last_offset
            load_keys(offsets, payload, count, base, last, self.first_offset)
            return True
        for record in scan(payload, header.record_count):
            offset = header.base_offset + record.offset_delta
            if offset > header.last_offset:
                raise beyond_batch(offset, header.last_offset)
            if record.key is None or offset < self.first_offset:
                continue
            if len(offsets) >= self.capacity:
                return False
            offsets[key_id(record.key)] = self.latest = offset
        return True

    def reach(self, offset: int) -> None:
        """Notes that everything up to this offset is in the map."""
        self.latest = max(self.latest, offset)

    def get(self, key: bytes) -> int:
        """The offset of a key (as `key_id` gives it), or MISSING."""
        return self._offsets.get(key, MISSING)

    def all_superseded(self, header: BatchHeader) -> bool:
        """Whether no record of a batch is the last of its key, without looking into the batch.

        This is known if the map covers the whole batch: then only records in the map may stay.
        """
        if header.base_offset < self.first_offset or header.last_offset > self.latest:
            return False
        if self._survivors is None:
            self._survivors = array("q", sorted(self._offsets.values()))
        survivors = self._survivors
        index = bisect_left(survivors, header.base_offset)
        return index == len(survivors) or survivors[index] > header.last_offset
