"""Transactions of version 2: each end gives the identity of the next one (KIP-890, part 2).

What is expected was asked of Apache Kafka 4.2.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from highwater.broker.coordinator.transaction import steps
from highwater.broker.coordinator.transaction.records import (
    EPOCH_BUMPED,
    NO_ID,
    BadRecordError,
    State,
    StoredTransaction,
    TransactionRecord,
    decode,
    encode,
)
from highwater.broker.coordinator.transaction.transaction import MAX_EPOCH, Identity
from highwater.kafka.errors import ErrorCode
from tests.unit.broker.coordinator.transaction.test_steps import (
    ALLOWED,
    IDLE,
    NAME,
    A,
    B,
    Life,
    Table,
)

LAST = MAX_EPOCH - 1
"""The last epoch that a producer gets."""


class Bumping(Table):
    """A table whose producer adds partitions and ends transactions as version 2 does."""

    def end(self, who: Identity, commit: bool, fresh: bool = True) -> Identity | ErrorCode | str:
        self.ids += 1
        fresh_id = self.ids if fresh and steps.ends_last_epoch(self.txn) else None
        found: Identity | ErrorCode | str = self.ask(steps.end_and_bump, who, commit, fresh_id)
        return found

    def ended(self, who: Identity, commit: bool = True) -> Identity:
        """The answer to an EndTxn whose decision is committed."""
        ticket = self.end(who, commit)
        assert isinstance(ticket, str), ticket
        self.committed()
        found = self.answers[ticket]
        assert isinstance(found, Identity)
        return found

    def add(self, who: Identity) -> ErrorCode | str:
        self.tickets += 1
        ticket = f"t{self.tickets}"
        self.do(steps.add_partitions(self.txn, who, [A, B], self.now, ticket, EPOCH_BUMPED))
        found: ErrorCode | str = self.answers.get(ticket, ticket)
        return found

    def open(self, who: Identity) -> None:
        assert isinstance(self.add(who), str)
        self.committed()

    def at(self, epoch: int) -> Identity:
        """A producer in this epoch, with an open transaction."""
        first = self.begin()
        value = self.txn.stored
        assert value is not None
        record = TransactionRecord(NAME, replace(value, epoch=epoch, client_version=EPOCH_BUMPED))
        self.log.append(record)
        self.txn.replay(record)
        return Identity(first.producer_id, epoch)


@pytest.fixture
def table() -> Bumping:
    return Bumping()


def bumped(who: Identity, by: int = 1) -> Identity:
    return Identity(who.producer_id, who.epoch + by)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_gives_the_next_epoch_and_markers_carry_it(table: Bumping, commit: bool) -> None:
    me = table.begin()
    assert table.ended(me, commit) == bumped(me)
    prepared = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    assert table.sent == [(prepared, (A,), bumped(me))]
    # the next transaction waits for the markers
    assert table.add(bumped(me)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.end(bumped(me), commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    # a repeated request
    assert table.end(me, commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.end(me, not commit) is ErrorCode.INVALID_TXN_STATE
    table.finish()
    assert table.end(me, commit) == bumped(me)
    assert table.end(me, not commit) is ErrorCode.INVALID_TXN_STATE
    table.open(bumped(me))
    assert table.end(me, commit) is ErrorCode.PRODUCER_FENCED, "a late one ends no other"
    assert table.ended(bumped(me), commit) == bumped(me, 2)


def test_an_abort_ends_what_has_not_begun(table: Bumping) -> None:
    ticket = table.init()
    table.committed()
    me = table.answers[ticket]
    assert table.end(me, True) is ErrorCode.INVALID_TXN_STATE
    assert table.ended(me, False) == bumped(me)
    assert table.sent == [(State.PREPARE_ABORT, (), bumped(me))], "no partition gets a marker"
    table.committed()
    assert table.txn.state is State.COMPLETE_ABORT
    assert table.end(bumped(me), True) is ErrorCode.INVALID_TXN_STATE
    assert table.ended(bumped(me), False) == bumped(me, 2)


def test_who_is_refused(table: Bumping) -> None:
    me = table.begin()
    assert steps.end_and_bump(None, me, True, None, 0, 1).answers == [
        (1, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    ]
    stranger = Identity(me.producer_id + 7, 0)
    assert table.end(stranger, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert table.end(bumped(me), True) is ErrorCode.PRODUCER_FENCED
    table.end(me, True)
    for who in (me, stranger, bumped(me)):
        assert table.end(who, True) is ErrorCode.CONCURRENT_TRANSACTIONS, "a write is under way"


def test_the_last_epoch_is_followed_by_another_producer_id(table: Bumping) -> None:
    me = table.at(LAST)
    assert table.end(me, True, fresh=False) is ErrorCode.CONCURRENT_TRANSACTIONS
    after = table.ended(me)
    assert after == Identity(table.ids, 0)
    assert after.producer_id != me.producer_id
    assert table.sent == [(State.PREPARE_COMMIT, (A,), Identity(me.producer_id, MAX_EPOCH))]
    table.failover(survives=True)
    assert table.add(after) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.end(after, False) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.init(after) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.end(me, True) is ErrorCode.CONCURRENT_TRANSACTIONS
    table.finish()
    assert table.end(me, True) == after, "a repeated request"
    table.failover(survives=True)
    assert table.end(me, True) == after, "to another coordinator, too"
    assert table.end(me, False) is ErrorCode.INVALID_TXN_STATE
    table.open(after)
    assert table.end(me, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert table.ended(after) == bumped(after)


def test_a_producer_that_was_timed_out_goes_on_after_its_abort(table: Bumping) -> None:
    me = table.at(4)
    table.now += 70_000
    table.do(steps.time_out(table.txn, table.now, 0))
    table.committed()
    table.finish()
    assert table.end(me, True) is ErrorCode.INVALID_TXN_STATE
    assert table.ask(steps.end, me, False) is ErrorCode.PRODUCER_FENCED, "before v5"
    assert table.end(me, False) == bumped(me)
    ticket = table.init(me)
    table.committed()
    assert table.answers[ticket] == bumped(me), "a claim of the old identity finds the new one"
    table.open(bumped(me))


def test_a_producer_that_was_fenced_in_its_last_epoch_gets_no_reserved_one(table: Bumping) -> None:
    me = table.at(LAST)
    table.now += 70_000
    table.do(steps.time_out(table.txn, table.now, 0))
    table.committed()
    table.finish()
    assert table.end(me, False) is ErrorCode.PRODUCER_FENCED
    assert table.end(bumped(me), False) is ErrorCode.PRODUCER_FENCED


def test_versions_take_turns(table: Bumping) -> None:
    me = table.begin()
    table.ask(steps.end, me, True)
    table.committed()
    table.finish()
    assert table.end(me, False) != bumped(me), "an end without a new epoch is not repeated by v5"
    table.committed()
    assert table.txn.state is State.PREPARE_ABORT
    assert table.txn.epoch == me.epoch + 1
    table.committed()
    table.open(bumped(me))
    table.ask(steps.end, bumped(me), True)
    table.committed()
    table.finish()
    assert table.ask(steps.end, bumped(me), True) is ErrorCode.NONE
    assert table.end(me, True) is ErrorCode.PRODUCER_FENCED


def test_records_have_tagged_fields_only_where_they_are_needed() -> None:
    plain = StoredTransaction(7, 2, 60_000, State.ONGOING, (A,), 5, 4)
    assert encode(TransactionRecord("id", plain))[1] == bytes.fromhex(
        "0000" + "0000000000000007" + "0002" + "0000ea60" + "01"
        + "00000001" + "0001" + b"a".hex() + "00000001" + "00000000"
        + "0000000000000005" + "0000000000000004"
    )  # fmt: skip
    value = replace(plain, previous_producer_id=6, next_producer_id=8, client_version=2)
    key, data = encode(TransactionRecord("id", value))
    assert data == bytes.fromhex(
        "0001" + "0000000000000007" + "0002" + "0000ea60" + "01"
        + "02" + "02" + b"a".hex() + "02" + "00000000" + "00"
        + "0000000000000005" + "0000000000000004"
        + "03" + "0008" + "0000000000000006" + "0108" + "0000000000000008" + "0202" + "0002"
    )  # fmt: skip
    assert decode(key, data) == TransactionRecord("id", value)
    empty = StoredTransaction(7, 2, 60_000, State.EMPTY, (), 5, -1, client_version=2)
    key, data = encode(TransactionRecord("id", empty))
    assert data is not None
    assert data[17] == 0, "null, as Kafka has it"
    assert decode(key, data) == TransactionRecord("id", empty)
    with pytest.raises(BadRecordError):
        decode(key, data[:-1])


class BumpingLife(Life):
    """Any event in any order; here producers end transactions by v5, or by earlier versions."""

    allowed = ALLOWED | {(state, State.PREPARE_ABORT) for state in IDLE}
    first_epoch = 0

    def __init__(self) -> None:
        super().__init__()
        self.bumping = Bumping()
        self.table = self.bumping
        if self.first_epoch:
            self.given.append(self.bumping.at(self.first_epoch))

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 3), commit=st.booleans(), fresh=st.booleans())
    def end_and_bump(self, which: int, commit: bool, fresh: bool) -> None:
        who = self.given[-1 - which % len(self.given)]
        self.note("bump", (who, commit), self.bumping.end(who, commit, fresh))

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 3))
    def add_by_broker(self, which: int) -> None:
        who = self.given[-1 - which % len(self.given)]
        self.note("add", who, self.bumping.add(who))

    def hear(self, what: str, detail: object, found: object) -> None:
        super().hear(what, detail, found)
        if what == "bump" and isinstance(found, Identity):
            assert isinstance(detail, tuple)
            who, commit = detail
            assert self.order(found) > self.order(who)
            assert found.epoch < MAX_EPOCH
            self._decided(who, commit)
            if found not in self.given:
                self.given.append(found)

    def _decided(self, who: Identity, commit: bool) -> None:
        """What was answered is in the log: this transaction's decision, under the next epoch."""
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        assert any(
            r.value is not None
            and (r.value.state, r.value.producer_id, r.value.epoch)
            == (state, who.producer_id, who.epoch + 1)
            for r in self.table.log
        ), f"{who} was told that its transaction has ended"

    def teardown(self) -> None:
        """No two transactions share an identity, where the first was ended with a new epoch."""
        ended: set[tuple[int, int]] = set()
        before = State.EMPTY
        for record in self.table.log:
            value = record.value
            assert value is not None
            if value.state is State.ONGOING and before is not State.ONGOING:
                assert (value.producer_id, value.epoch) not in ended
            if value.state.is_prepared and value.client_version == EPOCH_BUMPED:
                ended.add((value.producer_id, value.epoch - 1))
                assert value.next_producer_id == NO_ID or value.epoch == MAX_EPOCH
            before = value.state


class ExhaustedLife(BumpingLife):
    first_epoch = LAST - 3


@pytest.mark.thorough
class TestLife(BumpingLife.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@pytest.mark.thorough
class TestLastEpochs(ExhaustedLife.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
