"""The states of share-partitions, by the committed log of __share_group_state alone.

A reader of its own follows what is committed, record by record, so that a leader's knowledge can be
compared with what another one would find.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from highwater.broker.coordinator.share.records import Snapshot, decode
from highwater.broker.share.in_flight import RecordState
from highwater.kafka.topic_names import SHARE_GROUP_STATE_TOPIC
from highwater.kafka.wire.record_codec import decode_records
from highwater.simulation.rules.allowed_losses import log_of

if TYPE_CHECKING:
    from highwater.simulation.rules.findings import Book
    from highwater.simulation.rules.mirror import Batch


@dataclass(slots=True)
class _State:
    start: int = -1
    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Offset -> delivery count and state; of two that are stored, the higher one counts."""


class StoredStates:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._states: dict[str, _State] = {}
        self._read: dict[str, int] = {}
        """Key -> how many batches of its log were read for it."""

    def has_ended(self, key: str, offset: int) -> bool:
        """Whether a leader that reads the state finds that a record has ended.  Ask only while
        nothing of the log was lost."""
        truth = log_of(self._book, SHARE_GROUP_STATE_TOPIC, key)
        if truth is None:
            return True
        begun = self._read.get(key, 0)
        for batch in truth.committed[begun:]:
            self._replay(key, batch)
        self._read[key] = len(truth.committed)
        state = self._states.get(key, _State())
        _, last = state.records.get(offset, (0, RecordState.AVAILABLE))
        return offset < state.start or RecordState(last).ended

    def _replay(self, key: str, batch: Batch) -> None:
        """The coordinator stores one record in a batch, and compresses none."""
        for record in decode_records(batch.records, 1, batch.base, 0, None):
            found = decode(record.key, record.value)
            if found is None or str(found.key) != key:
                continue
            value = found.value
            if value is None or isinstance(value, Snapshot):
                self._states[key] = _State()
            if value is None:
                continue
            state = self._states.setdefault(key, _State())
            state.start = max(state.start, value.start_offset)
            for first, last, kind, count in value.batches:
                for offset in range(first, last + 1):
                    before = state.records.get(offset, (0, 0))
                    state.records[offset] = max(before, (count, kind))
