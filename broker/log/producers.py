"""Producer state of one partition, which makes a producer's retry harmless (KIP-98).

Every batch of an idempotent producer carries its id, its epoch and the sequence number of its first
record.  The leader keeps, for each id, the epoch and the last five batches (a producer may have
five requests in flight):

* a batch that is one of those five is a retry: it is answered with its first offset;
* any other batch must continue the sequence, which runs from 0 to 2^31-1 and then from 0 again;
* a lower epoch is a zombie; a higher one fences the zombie, and begins at sequence 0;
* an unknown id (expired, or its records are gone) may begin anywhere.

Followers take the leader's batches unchecked, so that any of them can take over.  The state is a
function of the log, so it can be rebuilt from batch headers; a snapshot for each segment
(`.snapshot`, at its base offset) bounds how much must be read.  A snapshot keeps one batch of the
five.

An append is prepared (checked) against this state and committed after its bytes are in the file:
entries are immutable, so a failed append leaves no trace.

Transactions: an id's first transactional batch opens one, a marker (control batch) ends it.
Offsets from the first open one on are unstable, and so are those of ended ones until their marker
is below the HW.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from highwater.broker.log.parts import Origin
from highwater.broker.log.producer_entry import (
    NO_EPOCH,
    Batch,
    CorruptSnapshotError,
    ProducerEntry,
    decode_snapshot,
    encode_snapshot,
)
from highwater.broker.log.txnindex import AbortedTransaction
from highwater.broker.log.verification import Verifications
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.records import CONTROL, MAX_SEQUENCE, TRANSACTIONAL, BatchHeader, Marker
from highwater.world.api import Disk

logger = logging.getLogger(__name__)

BATCHES_KEPT = 5


class Transaction(NamedTuple):
    """An ended transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class Prepared:
    """Changes that an append makes once it is in the log."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    started: list[tuple[int, int]] = field(default_factory=list)
    """(first offset, producer id)"""
    ended: list[Transaction] = field(default_factory=list)
    duplicate: Batch | None = None


NOTHING = Prepared()
MarkerOf = Callable[[BatchHeader], Marker | None]


class ProducerStates:
    """The producers of one log, and their snapshots in its folder."""

    def __init__(self, disk: Disk, folder: str, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self._disk = disk
        self._folder = folder
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        self._unreplicated: list[Transaction] = []
        self.verifications = Verifications()
        self.end_offset = 0
        """The state covers the log up to here."""
        self.snapshots: list[int] = []
        """Offsets of the snapshot files, rising."""
        self._last_snapshot = -1

    # ------------------------------------------------------------------------------- reading

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def entries(self) -> list[ProducerEntry]:
        """All entries, by id (DescribeProducers)."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of an open transaction, or of an ended one whose marker is not
        replicated.
        """
        if not self._ongoing and not self._unreplicated:
            return None
        offsets = [txn.first_offset for txn in self._unreplicated]
        if self._ongoing:
            offsets.append(next(iter(self._ongoing)))  # they stand in the order of the log
        return min(offsets)

    # ------------------------------------------------------------------- appending, in two steps

    def prepare(
        self,
        headers: Sequence[BatchHeader],
        base_offset: int | None,
        origin: Origin,
        *,
        marker_of: MarkerOf,
    ) -> Prepared:
        """Checks batches against this state, as `origin` requires.  Offsets run from `base_offset`;
        None, for REPLICATION: they are those of the headers.
        """
        client = origin is Origin.CLIENT
        prepared = NOTHING
        offset = base_offset
        for header in headers:
            first = header.base_offset if offset is None else offset
            last = first + header.last_offset_delta
            if offset is not None:
                offset = last + 1
            if header.producer_id < 0:
                continue
            if prepared is NOTHING:
                prepared = Prepared()
            entry = prepared.entries.get(header.producer_id) or self._entries.get(
                header.producer_id
            )
            if client and entry is not None and entry.epoch == header.producer_epoch:
                duplicate = _find(entry, header)
                if duplicate is not None:
                    prepared.duplicate = duplicate
                    return prepared
            if entry is None:
                entry = ProducerEntry(header.producer_id)
            if base_offset is not None and header.producer_epoch < entry.epoch:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {header.producer_id} has epoch {header.producer_epoch}, "
                    f"and {entry.epoch} was seen",
                )
            if header.attributes & CONTROL:
                self._prepare_marker(prepared, entry, header, last, marker_of, base_offset is None)
                continue
            if client:
                _check_sequence(entry, header)
            self._prepare_batch(prepared, entry, header, first, last, base_offset is None)
        return prepared

    def _prepare_batch(
        self,
        prepared: Prepared,
        entry: ProducerEntry,
        header: BatchHeader,
        first: int,
        last: int,
        follower: bool,
    ) -> None:
        transaction = entry.txn_first_offset
        if header.attributes & TRANSACTIONAL:
            if transaction < 0:
                transaction = first
                prepared.started.append((first, header.producer_id))
        elif transaction >= 0 and not follower:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, "
                "and sent a batch that is not part of it",
            )
        kept = entry.batches if entry.epoch == header.producer_epoch else ()
        batch = Batch(header.base_sequence, header.last_sequence, first, last, header.max_timestamp)
        prepared.entries[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            entry.coordinator_epoch,
            header.max_timestamp,
            transaction,
            (*kept[-(BATCHES_KEPT - 1) :], batch),
            last,
        )

    def _prepare_marker(
        self,
        prepared: Prepared,
        entry: ProducerEntry,
        header: BatchHeader,
        last: int,
        marker_of: MarkerOf,
        follower: bool,
    ) -> None:
        marker = marker_of(header)
        if marker is None:  # emptied by compaction
            return
        if entry.coordinator_epoch > marker.coordinator_epoch and not follower:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {header.producer_id} came from coordinator epoch "
                f"{marker.coordinator_epoch}, and {entry.coordinator_epoch} was seen",
            )
        if entry.txn_first_offset >= 0:
            ended = Transaction(header.producer_id, entry.txn_first_offset, last, not marker.commit)
            prepared.ended.append(ended)
        prepared.entries[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            header.max_timestamp,
            -1,
            entry.batches if entry.epoch == header.producer_epoch else (),
            last,
        )

    def commit(self, prepared: Prepared, end_offset: int) -> Sequence[AbortedTransaction]:
        """Applies batches that are now in the log; returns the transactions that they aborted."""
        self.end_offset = end_offset
        if prepared is NOTHING:
            return ()
        self._entries.update(prepared.entries)
        self.verifications.forget(prepared.entries)
        if prepared.started:
            self._ongoing.update(prepared.started)
        return self._end(prepared.ended) if prepared.ended else ()

    def _end(self, transactions: Sequence[Transaction]) -> list[AbortedTransaction]:
        aborted = []
        for ended in transactions:
            self._ongoing.pop(ended.first_offset, None)
            self._unreplicated.append(ended)
            if ended.aborted:
                stable = min(
                    next(iter(self._ongoing), ended.last_offset + 1), ended.last_offset + 1
                )
                aborted.append(AbortedTransaction(*ended[:3], stable))
        return aborted

    def replicated_to(self, high_watermark: int) -> None:
        """Lets markers below the high watermark count."""
        if self._unreplicated:
            self._unreplicated = [
                txn for txn in self._unreplicated if txn.last_offset >= high_watermark
            ]

    def expire(self, now_ms: int) -> int:
        """Forgets ids that wrote nothing for producer.id.expiration.ms and have no open
        transaction.
        """
        old = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms
        ]
        for producer_id in old:
            del self._entries[producer_id]
        self.verifications.expire(now_ms - self.expiration_ms)
        return len(old)

    # ------------------------------------------------------------------------ snapshots, reloads

    def find_snapshots(self) -> None:
        """Lists the snapshot files."""
        self.snapshots = sorted(
            int(name[:20])
            for name in self._disk.list(self._folder)
            if len(name) == 29 and name.endswith(".snapshot") and name[:20].isdigit()
        )

    def snapshot_path(self, offset: int) -> str:
        return f"{self._folder}/{offset:020d}.snapshot"

    def take_snapshot(self) -> None:
        """Writes the state at `end_offset`, unless the last snapshot is of that offset."""
        if self.end_offset == self._last_snapshot or self.end_offset <= 0:
            return
        self._disk.replace(self.snapshot_path(self.end_offset), encode_snapshot(self.entries))
        if self.end_offset not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, self.end_offset])
        self._last_snapshot = self.end_offset

    def delete_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if offset in self.snapshots:
                self.snapshots.remove(offset)
                if self._disk.exists(self.snapshot_path(offset)):
                    self._disk.remove(self.snapshot_path(offset))

    def clear(self, end_offset: int) -> None:
        """Starts over with an empty log that begins here."""
        self.delete_snapshots(list(self.snapshots))
        self._forget()
        self.end_offset = end_offset

    def take_over(self, other: ProducerStates) -> None:
        """Takes the state of another copy of the same log; a snapshot knows less (one batch of
        five).
        """
        assert self.end_offset == other.end_offset
        self._entries, self._ongoing = other._entries, other._ongoing
        self._unreplicated = other._unreplicated
        self.verifications = other.verifications

    def _forget(self) -> None:
        self._entries = {}
        self._ongoing = {}
        self._unreplicated = []
        self._last_snapshot = -1

    def unchanged_by_truncation(self, offset: int) -> bool:
        """Whether no producer wrote at this offset or above: then nothing needs a reload."""
        return not self._unreplicated and all(
            -1 < entry.last_offset < offset for entry in self._entries.values()
        )

    def reload(self, log_start_offset: int, offset: int, now_ms: int) -> None:
        """Goes back to the newest readable snapshot at or below `offset`; later ones are deleted.

        Afterwards `end_offset` is the offset from which the log must be replayed.
        """
        self.delete_snapshots([s for s in self.snapshots if s > offset or s <= log_start_offset])
        self._forget()
        while self.snapshots:
            newest = self.snapshots[-1]
            try:
                loaded = decode_snapshot(self._disk.read_all(self.snapshot_path(newest)))
            except CorruptSnapshotError as error:
                logger.warning("%s is not used: %s", self.snapshot_path(newest), error)
                self.delete_snapshots([newest])
                continue
            for entry in sorted(loaded, key=lambda entry: entry.txn_first_offset):
                if entry.txn_first_offset >= 0:
                    self._ongoing[entry.txn_first_offset] = entry.producer_id
                elif now_ms - entry.last_timestamp >= self.expiration_ms:
                    continue
                # its last offset is not in the snapshot: at most the offset before it
                self._entries[entry.producer_id] = entry._replace(last_offset=newest - 1)
            self.end_offset = self._last_snapshot = newest
            return
        self.end_offset = log_start_offset

    def replay(self, header: BatchHeader, marker_of: MarkerOf) -> Sequence[AbortedTransaction]:
        """Takes a batch that is in the log; returns the transaction it aborted."""
        prepared = self.prepare([header], None, Origin.REPLICATION, marker_of=marker_of)
        return self.commit(prepared, header.base_offset + header.last_offset_delta + 1)


def _find(entry: ProducerEntry, header: BatchHeader) -> Batch | None:
    sequence = header.base_sequence
    for batch in entry.batches:
        if batch.first_sequence == sequence and batch.last_sequence == header.last_sequence:
            return batch
    return None


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if entry.epoch == NO_EPOCH:
        return
    if header.producer_epoch != entry.epoch:
        if sequence == 0:
            return
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} began epoch {header.producer_epoch} at sequence "
            f"{sequence}, and must begin at 0",
        )
    last = entry.last_sequence
    if sequence == last + 1 or (sequence == 0 and last == MAX_SEQUENCE):
        return
    raise ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {sequence} after {last}",
    )
