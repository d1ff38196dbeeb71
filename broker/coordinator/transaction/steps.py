"""Pure steps on one transactional id, each of which returns an `Outcome`.

At most one record of an id is under way.  Until its fate is known, every other request is answered
CONCURRENT_TRANSACTIONS and must be repeated, because a step decides only on committed state.  A
write that took too long is answered with an error, but stays under way: the log decides.

The requester must be the producer with the id and epoch of the last InitProducerId.  That request
raises the epoch, so that a producer that was taken for dead and comes back (a zombie) is refused,
here and by every partition that has a marker of the higher epoch.  The zombie's open transaction is
aborted first, under a higher epoch (`_fence` says who may get that one); meanwhile the new producer
must repeat its request.

A client of transaction.version 2 gets a new epoch with each end of a transaction (`end_and_bump`;
KIP-890, part 2).  The markers carry the new epoch, so that no batch or EndTxn of the transaction
before can belong to the next one.  When the epochs of a producer id are used up, the client gets
another id, which becomes the stored one when all markers are written.

Source: kafka.coordinator.transaction.TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from highwater.broker.coordinator.transaction.records import (
    EPOCH_BUMPED,
    NO_EPOCH,
    NO_ID,
    NO_TIMESTAMP,
    State,
    StoredTransaction,
    TransactionRecord,
)
from highwater.broker.coordinator.transaction.transaction import (
    MAX_EPOCH,
    Identity,
    Outcome,
    Ticket,
    Transaction,
    Write,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def _answer(ticket: Ticket, answer: object) -> Outcome:
    return Outcome(answers=[(ticket, answer)])


def _write(txn: Transaction, value: StoredTransaction | None, ticket: Ticket | None) -> Outcome:
    """Stores `value`; the ticket is answered with the error, or NONE once it is committed."""

    def then(error: ErrorCode) -> Outcome:
        out = Outcome()
        if ticket is not None:
            out.answers.append((ticket, _WRITE_ERRORS.get(error, error)))
        return out

    return Outcome(write=Write(TransactionRecord(txn.transactional_id, value), then))


# ------------------------------------------------------------------------------ InitProducerId


def needs_producer_id(txn: Transaction, expected: Identity | None) -> bool:
    """Whether `init` will need a fresh producer id."""
    if txn.stored is None:
        return True
    return txn.epoch_is_exhausted and (expected is None or expected.epoch == txn.epoch)


def init(
    txn: Transaction,
    timeout_ms: int,
    expected: Identity | None,
    fresh_id: int | None,
    now_ms: int,
    ticket: Ticket,
) -> Outcome:
    """Gives the producer its next identity; the ticket is answered with that, or an error.
    `expected` is the identity that a producer claims when it goes on after an error (KIP-360).
    """
    if txn.pending:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    stored = txn.stored
    if stored is None:
        if fresh_id is None:
            return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        return _become(txn, Identity(fresh_id, 0), NO_EPOCH, timeout_ms, now_ms, ticket)
    if expected is not None and not _is_it(stored, expected):
        return _answer(ticket, ErrorCode.PRODUCER_FENCED)
    if stored.state.is_prepared:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    if stored.state is State.ONGOING:
        return _fence(txn, stored, now_ms, ticket)
    if needs_producer_id(txn, expected):
        if fresh_id is None:
            return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        last = NO_EPOCH if expected is None else stored.epoch
        return _become(txn, Identity(fresh_id, 0), last, timeout_ms, now_ms, ticket)
    if expected is None:
        return _bump(txn, stored, NO_EPOCH, timeout_ms, now_ms, ticket)
    if expected.epoch == stored.epoch:
        return _bump(txn, stored, stored.epoch, timeout_ms, now_ms, ticket)
    if expected.epoch == stored.last_epoch:  # a retry: its first attempt has raised the epoch
        return _become(
            txn,
            Identity(stored.producer_id, stored.epoch),
            stored.last_epoch,
            timeout_ms,
            now_ms,
            ticket,
        )
    return _answer(ticket, ErrorCode.PRODUCER_FENCED)


def _is_it(stored: StoredTransaction, expected: Identity) -> bool:
    """Whether the producer id is the stored one, or the one before or after; `init` checks its
    epoch."""
    if expected.producer_id == stored.producer_id or _is_next(stored, expected):
        return True
    exhausted = expected.epoch >= MAX_EPOCH - 1
    return exhausted and expected.producer_id == stored.last_producer_id


def _bump(
    txn: Transaction,
    stored: StoredTransaction,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
    ticket: Ticket,
) -> Outcome:
    identity = Identity(stored.producer_id, stored.epoch + 1)
    return _become(txn, identity, last_epoch, timeout_ms, now_ms, ticket)


def _become(
    txn: Transaction,
    identity: Identity,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
    ticket: Ticket,
) -> Outcome:
    value = StoredTransaction(
        identity.producer_id,
        identity.epoch,
        timeout_ms,
        updated_ms=now_ms,
        last_producer_id=NO_ID if txn.stored is None else txn.stored.producer_id,
        last_epoch=last_epoch,
    )

    def then(error: ErrorCode) -> Outcome:
        answer = identity if error is ErrorCode.NONE else _WRITE_ERRORS.get(error, error)
        return _answer(ticket, answer)

    return Outcome(write=Write(TransactionRecord(txn.transactional_id, value), then))


def _fence(
    txn: Transaction, stored: StoredTransaction, now_ms: int, ticket: Ticket | None
) -> Outcome:
    """Aborts an open transaction under a higher epoch.  No producer is given that epoch, but for
    one of transaction.version 2 that aborts its transaction or claims its old identity."""
    value = replace(
        stored,
        epoch=min(stored.epoch + 1, MAX_EPOCH),
        # a client of transaction.version 2 may learn of the abort, and go on in the new epoch
        last_epoch=stored.epoch if stored.client_version == EPOCH_BUMPED else NO_EPOCH,
        state=State.PREPARE_ABORT,
        updated_ms=now_ms,
    )

    def then(error: ErrorCode) -> Outcome:
        out = Outcome(send_markers=error is ErrorCode.NONE)
        if ticket is not None:
            code = _WRITE_ERRORS.get(error, error) or ErrorCode.CONCURRENT_TRANSACTIONS
            out.answers.append((ticket, code))
        return out

    return Outcome(write=Write(TransactionRecord(txn.transactional_id, value), then))


def time_out(txn: Transaction, now_ms: int, monotonic_ms: int) -> Outcome:
    """Aborts a transaction that has been open for longer than its producer's time-out.

    It is called repeatedly.  The stored start comes from the wall clock of whichever broker was the
    coordinator then; if that clock was ahead, the transaction would stay open, so the time for
    which this broker has seen it counts as well.
    """
    stored = txn.stored
    if stored is None or txn.pending or stored.state is not State.ONGOING:
        return Outcome()
    if txn.watched is None or txn.watched[0] != stored.started_ms:
        txn.watched = stored.started_ms, monotonic_ms
    seen_ms = monotonic_ms - txn.watched[1]
    if max(now_ms - stored.started_ms, seen_ms) <= stored.timeout_ms:
        return Outcome()
    return _fence(txn, stored, now_ms, None)


# ---------------------------------------------------------------------------- within a transaction


def _of(txn: Transaction | None, producer: Identity) -> StoredTransaction | ErrorCode:
    """The stored state for this producer, or the error that refuses the producer."""
    if txn is None or txn.stored is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if _is_next(txn.stored, producer):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if txn.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return txn.stored


def _is_next(stored: StoredTransaction, producer: Identity) -> bool:
    """Whether this is the identity that the producer will have when all markers are written."""
    return stored.next_producer_id != NO_ID and producer == Identity(stored.next_producer_id, 0)


def add_partitions(
    txn: Transaction | None,
    producer: Identity,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    ticket: Ticket,
    client_version: int = 0,
) -> Outcome:
    """Adds partitions, of which the first begins the transaction; answers with an error code."""
    stored = _of(txn, producer)
    if isinstance(stored, ErrorCode):
        return _answer(ticket, stored)
    assert txn is not None
    if txn.pending or stored.state.is_prepared:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    ongoing = stored.state is State.ONGOING
    before = stored.partitions if ongoing else ()
    after = tuple(dict.fromkeys((*before, *partitions)))
    if ongoing and len(after) == len(before):
        return _answer(ticket, ErrorCode.NONE)
    value = replace(
        stored,
        state=State.ONGOING,
        partitions=after,
        updated_ms=now_ms,
        started_ms=stored.started_ms if ongoing else now_ms,
        last_producer_id=stored.producer_id,
        client_version=max(client_version, stored.client_version if ongoing else 0),
    )
    return _write(txn, value, ticket)


def verify(
    txn: Transaction | None, producer: Identity, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether these partitions are in the producer's open transaction (KIP-890)."""
    tps = tuple(partitions)
    stored = _of(txn, producer)
    if isinstance(stored, ErrorCode):
        return dict.fromkeys(tps, stored)
    if stored.state.is_prepared:
        return dict.fromkeys(tps, ErrorCode.CONCURRENT_TRANSACTIONS)
    members = frozenset(stored.partitions if stored.state is State.ONGOING else ())
    return {tp: ErrorCode.NONE if tp in members else ErrorCode.TRANSACTION_ABORTABLE for tp in tps}


def end(
    txn: Transaction | None, producer: Identity, commit: bool, now_ms: int, ticket: Ticket
) -> Outcome:
    """The ticket is answered with an error code: NONE as soon as the decision is committed."""
    stored = _of(txn, producer)
    if isinstance(stored, ErrorCode):
        return _answer(ticket, stored)
    assert txn is not None
    if txn.pending:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    prepare = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    if stored.state is prepare:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    if stored.state is complete:
        return _answer(ticket, ErrorCode.NONE)
    if stored.state is not State.ONGOING:
        return _answer(ticket, ErrorCode.INVALID_TXN_STATE)
    value = replace(stored, state=prepare, updated_ms=now_ms, client_version=0)

    def then(error: ErrorCode) -> Outcome:
        code = _WRITE_ERRORS.get(error, error)
        return Outcome([(ticket, code)], send_markers=error is ErrorCode.NONE)

    return Outcome(write=Write(TransactionRecord(txn.transactional_id, value), then))


def ends_last_epoch(txn: Transaction | None) -> bool:
    """Whether `end_and_bump` will need a fresh producer id."""
    return txn is not None and txn.stored is not None and txn.epoch_is_exhausted


def end_and_bump(
    txn: Transaction | None,
    producer: Identity,
    commit: bool,
    fresh_id: int | None,
    now_ms: int,
    ticket: Ticket,
) -> Outcome:
    """The ticket is answered with the Identity for the next transaction, or an error code.

    An abort may also end a transaction to which nothing was added.  A producer that repeats its
    request is known by the epoch before the stored one, and gets the same answer again.
    """
    if txn is None or txn.stored is None:
        return _answer(ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if txn.pending:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    stored = txn.stored
    if _repeats(stored, producer):
        return _answer(ticket, _again(stored, commit))
    checked = _of(txn, producer)
    if isinstance(checked, ErrorCode):
        return _answer(ticket, checked)
    if stored.epoch >= MAX_EPOCH:
        return _answer(ticket, ErrorCode.PRODUCER_FENCED)
    if stored.state.is_prepared:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    ongoing = stored.state is State.ONGOING
    if commit and not ongoing:
        return _answer(ticket, ErrorCode.INVALID_TXN_STATE)
    exhausted = txn.epoch_is_exhausted
    if exhausted and fresh_id is None:
        return _answer(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    after = Identity(stored.producer_id, stored.epoch + 1)
    value = replace(
        stored,
        epoch=after.epoch,
        last_epoch=stored.epoch,
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        partitions=stored.partitions if ongoing else (),
        updated_ms=now_ms,
        last_producer_id=stored.producer_id,
        previous_producer_id=NO_ID,
        next_producer_id=NO_ID,
        client_version=EPOCH_BUMPED,
    )
    if exhausted and fresh_id is not None:
        after = Identity(fresh_id, 0)
        value = replace(value, next_producer_id=fresh_id)

    def then(error: ErrorCode) -> Outcome:
        answer = after if error is ErrorCode.NONE else _WRITE_ERRORS.get(error, error)
        return Outcome([(ticket, answer)], send_markers=error is ErrorCode.NONE)

    return Outcome(write=Write(TransactionRecord(txn.transactional_id, value), then))


def _repeats(stored: StoredTransaction, producer: Identity) -> bool:
    """Whether the last end of a transaction was that of this identity."""
    if stored.client_version != EPOCH_BUMPED or stored.state in (State.EMPTY, State.ONGOING):
        return False
    if producer.producer_id == stored.producer_id:
        return producer.epoch + 1 == stored.epoch
    exhausted = producer.epoch == MAX_EPOCH - 1 and stored.epoch == 0
    return exhausted and producer.producer_id == stored.previous_producer_id


def _again(stored: StoredTransaction, commit: bool) -> Identity | ErrorCode:
    """The answer to a repeated request."""
    prepare = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    if stored.state is prepare:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if stored.state is not complete:
        return ErrorCode.INVALID_TXN_STATE
    if stored.epoch >= MAX_EPOCH:  # fenced with its last epoch, which no producer gets
        return ErrorCode.PRODUCER_FENCED
    return Identity(stored.producer_id, stored.epoch)


# ------------------------------------------------------------------------------------- afterwards


def marked(txn: Transaction, partitions: Iterable[TopicPartition], now_ms: int) -> Outcome:
    """Notes partitions that need no marker any more; the last one ends the transaction."""
    for tp in partitions:
        txn.unmarked.pop(tp, None)
    return complete(txn, now_ms)


def complete(txn: Transaction, now_ms: int) -> Outcome:
    """Notes the end of a decided transaction whose markers are all written."""
    stored = txn.stored
    if stored is None or not stored.state.is_prepared or txn.unmarked or txn.pending:
        return Outcome()
    commit = stored.state is State.PREPARE_COMMIT
    state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    value = replace(stored, state=state, partitions=(), updated_ms=now_ms)
    if stored.next_producer_id != NO_ID:
        value = replace(
            value,
            producer_id=stored.next_producer_id,
            epoch=0,
            previous_producer_id=stored.producer_id,
            next_producer_id=NO_ID,
        )
    return _write(txn, value, None)


def expire(txn: Transaction, now_ms: int, expiration_ms: int) -> Outcome:
    """Forgets an id that was not used for transactional.id.expiration.ms."""
    stored = txn.stored
    if stored is None or txn.pending:
        return Outcome()
    if stored.state is State.ONGOING or stored.state.is_prepared:
        return Outcome()
    if stored.updated_ms + expiration_ms > now_ms or stored.updated_ms == NO_TIMESTAMP:
        return Outcome()
    return _write(txn, None, None)
