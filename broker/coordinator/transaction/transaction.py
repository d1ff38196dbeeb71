"""One transactional id, made from the records of __transaction_state.

    Empty            InitProducerId            -> Empty, with a higher epoch
    Empty, Complete  AddPartitionsToTxn        -> Ongoing
    Ongoing          EndTxn                    -> PrepareCommit or PrepareAbort
    Ongoing          InitProducerId, time-out  -> PrepareAbort, with a higher epoch
    Prepare...       all markers written       -> CompleteCommit, CompleteAbort
    Empty, Complete  unused for long           -> gone (a tombstone)

All of this is stored, and changes only in `replay`, which both loading and a committed write call.
Two things are not stored: whether a write is under way (`pending`: nothing else may begin until its
fate is known), and which partitions still wait for their marker.  A coordinator that takes over
sends all markers again, which is harmless: a second marker finds no transaction open.

Source: kafka.coordinator.transaction.TransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from highwater.broker.coordinator.transaction.records import (
    NO_EPOCH,
    NO_ID,
    State,
    StoredTransaction,
    TransactionRecord,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

Ticket = Hashable
"""Identifies a client that waits for an answer; only the shell knows what is behind it."""
MAX_EPOCH = 2**15 - 1


@dataclass(slots=True)
class Outcome:
    """The effects that a step asks for: answers to give, a record to write, markers to send."""

    answers: list[tuple[Ticket, object]] = field(default_factory=list)
    write: Write | None = None
    send_markers: bool = False
    """Whether to send markers to the partitions in `Transaction.unmarked`."""


@dataclass(frozen=True, slots=True)
class Write:
    """A record to be appended; `then` is called once with the result, after `replay` if it was
    committed.
    """

    record: TransactionRecord
    then: Callable[[ErrorCode], Outcome]


@dataclass(frozen=True, slots=True)
class Identity:
    producer_id: int
    epoch: int


class Transaction:
    """State and look-ups; the steps are in `steps`."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.stored: StoredTransaction | None = None
        # not stored
        self.pending = False
        self.watched: tuple[int, int] | None = None
        """When the open transaction began (wall clock), and was first seen here (monotonic)."""
        self.unmarked: dict[TopicPartition, None] = {}

    # ---------------------------------------------------------------- what is stored

    def replay(self, record: TransactionRecord) -> None:
        """Applies a record that is committed."""
        self.stored = record.value
        prepared = record.value is not None and record.value.state.is_prepared
        self.unmarked = dict.fromkeys(record.value.partitions) if record.value and prepared else {}

    # ---------------------------------------------------------------- look-ups

    @property
    def state(self) -> State:
        return State.EMPTY if self.stored is None else self.stored.state

    @property
    def producer_id(self) -> int:
        return NO_ID if self.stored is None else self.stored.producer_id

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.stored is None else self.stored.epoch

    @property
    def is_unused(self) -> bool:
        return self.stored is None and not self.pending

    @property
    def epoch_is_exhausted(self) -> bool:
        """Whether only the last epoch is left, which is reserved for fencing the one before it."""
        return self.epoch >= MAX_EPOCH - 1
