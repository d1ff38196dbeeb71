"""One transactional id, without a broker: its steps, its log, and things that it must never do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from highwater.broker.coordinator.transaction import steps
from highwater.broker.coordinator.transaction.records import (
    BadRecordError,
    State,
    StoredTransaction,
    TransactionRecord,
    decode,
    encode,
)
from highwater.broker.coordinator.transaction.transaction import (
    Identity,
    Outcome,
    Transaction,
    Write,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
NAME = "payments"


class Table:
    """The shell, by hand: one write at a time waits for `committed` or `lost`."""

    def __init__(self) -> None:
        self.txn = Transaction(NAME)
        self.log: list[TransactionRecord] = []
        self.waiting: Write | None = None
        self.answers: dict[Any, Any] = {}
        self.sent: list[tuple[State, tuple[TopicPartition, ...], Identity]] = []
        self.now = 1000
        self.tickets = 0
        self.ids = 100

    def do(self, outcome: Outcome) -> None:
        for ticket, answer in outcome.answers:
            assert ticket not in self.answers, f"{ticket} is answered twice"
            self.answers[ticket] = answer
        if outcome.write is not None:
            assert self.waiting is None, "two writes are under way"
            self.waiting, self.txn.pending = outcome.write, True
        if outcome.send_markers:
            stored = self.txn.stored
            assert stored is not None
            assert stored.state.is_prepared
            identity = Identity(stored.producer_id, stored.epoch)
            self.sent.append((stored.state, tuple(self.txn.unmarked), identity))
            self.do(steps.complete(self.txn, self.now))

    def committed(self) -> None:
        write, self.waiting = self.waiting, None
        assert write is not None
        self.txn.pending = False
        self.log.append(write.record)
        self.txn.replay(write.record)
        self.do(write.then(ErrorCode.NONE))

    def refused(self, code: ErrorCode) -> None:
        """The write could not be appended."""
        write, self.waiting = self.waiting, None
        assert write is not None
        self.txn.pending = False
        self.do(write.then(code))

    def failover(self, *, survives: bool) -> None:
        """Another broker loads the log, with or without the write under way."""
        if self.waiting is not None and survives:
            self.log.append(self.waiting.record)
        self.waiting = None
        self.txn = Transaction(NAME)
        for record in self.log:
            found = decode(*encode(record))
            assert found is not None
            self.txn.replay(found)
        if self.txn.state.is_prepared:
            self.do(Outcome(send_markers=True))

    def ask(self, step: Any, *args: Any) -> Any:
        """The answer, if it came at once, else the ticket."""
        self.tickets += 1
        ticket = f"t{self.tickets}"
        self.do(step(self.txn, *args, self.now, ticket))
        return self.answers.get(ticket, ticket)

    def init(self, expected: Identity | None = None) -> Any:
        self.ids += 1
        return self.ask(steps.init, 60_000, expected, self.ids)

    def begin(self) -> Identity:
        """Makes a producer with an open transaction in A."""
        ticket = self.init()
        self.committed()
        identity = self.answers[ticket]
        assert isinstance(identity, Identity)
        self.ask(steps.add_partitions, identity, [A])
        self.committed()
        return identity

    def finish(self) -> None:
        """Writes all markers, and notes that."""
        self.do(steps.marked(self.txn, list(self.txn.unmarked), self.now))
        self.committed()


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_transaction_from_end_to_end(table: Table) -> None:
    me = table.begin()
    assert table.txn.state is State.ONGOING
    assert table.ask(steps.add_partitions, me, [A]) is ErrorCode.NONE  # it is in already
    ticket = table.ask(steps.add_partitions, me, [B, A])
    assert table.ask(steps.end, me, True) is ErrorCode.CONCURRENT_TRANSACTIONS
    table.committed()
    assert table.answers[ticket] is ErrorCode.NONE
    ticket = table.ask(steps.end, me, True)
    assert table.sent == []  # no marker before the decision is committed
    table.committed()
    assert table.answers[ticket] is ErrorCode.NONE
    assert table.sent == [(State.PREPARE_COMMIT, (A, B), me)]
    assert table.ask(steps.end, me, True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.ask(steps.end, me, False) is ErrorCode.INVALID_TXN_STATE
    assert table.ask(steps.add_partitions, me, [A]) is ErrorCode.CONCURRENT_TRANSACTIONS
    table.do(steps.marked(table.txn, [B], table.now))
    assert table.waiting is None
    table.do(steps.marked(table.txn, [A], table.now))
    table.committed()
    now: State = table.txn.state
    assert now is State.COMPLETE_COMMIT
    assert table.ask(steps.end, me, True) is ErrorCode.NONE  # a retry
    assert table.ask(steps.end, me, False) is ErrorCode.INVALID_TXN_STATE


def test_nothing_to_end(table: Table) -> None:
    table.init()
    table.committed()
    me = Identity(table.txn.producer_id, 0)
    assert table.ask(steps.end, me, True) is ErrorCode.INVALID_TXN_STATE


def test_a_newcomer_fences(table: Table) -> None:
    zombie = table.begin()
    ticket = table.init()
    table.committed()
    assert table.answers[ticket] is ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = Identity(zombie.producer_id, zombie.epoch + 1)
    assert table.sent == [(State.PREPARE_ABORT, (A,), fenced)]
    assert table.ask(steps.end, zombie, True) is ErrorCode.PRODUCER_FENCED
    assert table.ask(steps.add_partitions, zombie, [B]) is ErrorCode.PRODUCER_FENCED
    assert steps.verify(table.txn, zombie, [A]) == {A: ErrorCode.PRODUCER_FENCED}
    assert table.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    table.finish()
    ticket = table.init()
    table.committed()
    assert table.answers[ticket] == Identity(zombie.producer_id, zombie.epoch + 2)


def test_a_producer_goes_on_with_a_higher_epoch(table: Table) -> None:
    me = table.begin()
    table.ask(steps.end, me, False)
    table.committed()
    table.finish()
    ticket = table.init(me)
    table.committed()
    higher = Identity(me.producer_id, me.epoch + 1)
    assert table.answers[ticket] == higher
    ticket = table.init(me)  # a retry, as the answer was lost
    table.committed()
    assert table.answers[ticket] == higher
    ticket = table.init()
    table.committed()
    assert table.init(me) is ErrorCode.PRODUCER_FENCED
    assert table.init(higher) is ErrorCode.PRODUCER_FENCED
    assert table.init(Identity(7, 0)) is ErrorCode.PRODUCER_FENCED


def test_epochs_are_used_up(table: Table) -> None:
    table.init()
    table.committed()
    assert table.txn.stored is not None
    table.txn.stored = replace(table.txn.stored, epoch=32765)
    old = Identity(table.txn.producer_id, 32766)
    ticket = table.init()
    table.committed()
    assert table.answers[ticket] == old
    assert steps.needs_producer_id(table.txn, None)
    assert steps.needs_producer_id(table.txn, old)
    ticket = table.init(old)
    table.committed()
    fresh = table.answers[ticket]
    assert (fresh.producer_id != old.producer_id, fresh.epoch) == (True, 0)
    ticket = table.init(old)  # a retry of that
    table.committed()
    assert table.answers[ticket] == fresh


def test_time_out(table: Table) -> None:
    me = table.begin()
    table.now += 60_000
    assert steps.time_out(table.txn, table.now, 0).write is None
    table.now += 1
    table.do(steps.time_out(table.txn, table.now, 0))
    table.committed()
    assert table.txn.state is State.PREPARE_ABORT
    assert table.ask(steps.end, me, True) is ErrorCode.PRODUCER_FENCED


def test_a_clock_that_was_ahead_keeps_no_transaction_open(table: Table) -> None:
    table.now = 10**12
    table.begin()
    table.now = 1000
    assert steps.time_out(table.txn, table.now, 5).write is None
    assert steps.time_out(table.txn, table.now, 60_005).write is None
    table.do(steps.time_out(table.txn, table.now, 60_006))
    table.committed()
    assert table.txn.state is State.PREPARE_ABORT


def test_expiry(table: Table) -> None:
    me = table.begin()
    assert steps.expire(table.txn, 10**12, 1000).write is None  # it is open
    table.ask(steps.end, me, True)
    table.committed()
    assert steps.expire(table.txn, 10**12, 1000).write is None
    table.finish()
    assert steps.expire(table.txn, table.now + 999, 1000).write is None
    table.do(steps.expire(table.txn, table.now + 1000, 1000))
    table.committed()
    assert table.txn.is_unused
    assert table.ask(steps.end, me, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_write_of_unknown_fate_blocks_what_follows(table: Table) -> None:
    me = table.begin()
    ticket = table.ask(steps.end, me, True)
    write = table.waiting
    assert write is not None
    table.do(write.then(ErrorCode.REQUEST_TIMED_OUT))
    assert table.answers[ticket] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.ask(steps.end, me, False) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert table.init() is ErrorCode.CONCURRENT_TRANSACTIONS


def test_verification(table: Table) -> None:
    me = table.begin()
    assert steps.verify(table.txn, me, [A, B]) == {
        A: ErrorCode.NONE,
        B: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert steps.verify(None, me, [A]) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    table.ask(steps.end, me, True)
    table.committed()
    assert steps.verify(table.txn, me, [A]) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    table.finish()
    assert steps.verify(table.txn, me, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}


IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
ALLOWED = {
    *((state, State.EMPTY) for state in IDLE),
    *((state, State.ONGOING) for state in (*IDLE, State.ONGOING)),
    (State.ONGOING, State.PREPARE_COMMIT),
    (State.ONGOING, State.PREPARE_ABORT),
    (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
    (State.PREPARE_ABORT, State.COMPLETE_ABORT),
}


class Life(RuleBasedStateMachine):
    """Any event may happen to the id, in any order; no answer given may become false."""

    allowed = ALLOWED

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.given: list[Identity] = []
        self.asked: dict[str, tuple[str, Any]] = {}
        self.ended: list[tuple[Identity, bool]] = []

    def note(self, what: str, detail: Any, found: Any) -> None:
        if isinstance(found, str):
            self.asked[found] = (what, detail)
        else:
            self.hear(what, detail, found)

    def hear(self, what: str, detail: Any, found: Any) -> None:
        if what == "init" and isinstance(found, Identity):
            if detail is None:
                assert all(self.order(found) > self.order(old) for old in self.given)
            self.given.append(found)
        if what == "end" and found is ErrorCode.NONE:
            self.ended.append(detail)

    @staticmethod
    def order(identity: Identity) -> tuple[int, int]:
        return identity.producer_id, identity.epoch

    @rule(again=st.booleans())
    def init(self, again: bool) -> None:
        expected = self.given[-1] if again and self.given else None
        self.note("init", expected, self.table.init(expected))

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 3), tp=st.sampled_from([A, B]))
    def add(self, which: int, tp: TopicPartition) -> None:
        who = self.given[-1 - which % len(self.given)]
        self.note("add", who, self.table.ask(steps.add_partitions, who, [tp]))

    @precondition(lambda self: self.given)
    @rule(which=st.integers(0, 3), commit=st.booleans())
    def end(self, which: int, commit: bool) -> None:
        who = self.given[-1 - which % len(self.given)]
        self.note("end", (who, commit), self.table.ask(steps.end, who, commit))

    @rule(count=st.integers(1, 2))
    def mark(self, count: int) -> None:
        txn = self.table.txn
        self.table.do(steps.marked(txn, list(txn.unmarked)[:count], self.table.now))

    @rule(later=st.sampled_from([1, 70_000]))
    def time(self, later: int) -> None:
        self.table.now += later
        self.table.do(steps.time_out(self.table.txn, self.table.now, 0))

    @precondition(lambda self: self.table.waiting)
    @rule()
    def commit(self) -> None:
        self.table.committed()

    @precondition(lambda self: self.table.waiting)
    @rule()
    def refuse(self) -> None:
        self.table.refused(ErrorCode.NOT_ENOUGH_REPLICAS)

    @rule(survives=st.booleans())
    def failover(self, survives: bool) -> None:
        self.table.failover(survives=survives)

    @invariant()
    def answers(self) -> None:
        for ticket in [t for t in self.asked if t in self.table.answers]:
            self.hear(*self.asked.pop(ticket), self.table.answers[ticket])

    @invariant()
    def the_log_is_the_state(self) -> None:
        loaded = Transaction(NAME)
        for record in self.table.log:
            found = decode(*encode(record))
            assert found is not None
            loaded.replay(found)
        live = self.table.txn.stored
        if live is not None:
            live = replace(live, last_producer_id=-1, last_epoch=-1)
        assert loaded.stored == live

    @invariant()
    def a_decision_holds(self) -> None:
        before: StoredTransaction | None = None
        for record in self.table.log:
            value = record.value
            assert value is not None
            if before is not None:
                assert (before.state, value.state) in self.allowed
                assert (value.producer_id, value.epoch) >= (before.producer_id, before.epoch)
            before = value
        for who, commit in self.ended:
            state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
            assert any(
                r.value is not None
                and (r.value.state, r.value.producer_id, r.value.epoch)
                == (state, who.producer_id, who.epoch)
                for r in self.table.log
            ), f"{who} was told that its transaction has ended"


@pytest.mark.thorough
class TestLife(Life.TestCase):  # type: ignore[misc, valid-type]  # Hypothesis makes the class
    settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_records_are_kafkas() -> None:
    value = StoredTransaction(7, 2, 60_000, State.ONGOING, (A, B), 5, 4)
    key, data = encode(TransactionRecord("id", value))
    assert key.hex() == "0000" + "0002" + b"id".hex()
    assert data is not None
    assert data.hex() == (
        "0000" + "0000000000000007" + "0002" + "0000ea60" + "01"
        + "00000002" + "0001" + b"a".hex() + "00000001" + "00000000"
        + "0001" + b"b".hex() + "00000001" + "00000003"
        + "0000000000000005" + "0000000000000004"
    )  # fmt: skip
    assert decode(key, data) == TransactionRecord("id", value)
    assert decode(key, None) == TransactionRecord("id", None)
    empty = StoredTransaction(7, 2, 60_000, State.EMPTY, (), 5, -1)
    key, data = encode(TransactionRecord("id", empty))
    assert data is not None
    assert data[17:21].hex() == "ffffffff"
    assert decode(key, data) == TransactionRecord("id", empty)


def test_the_flexible_value_is_read() -> None:
    data = bytes.fromhex(
        "0001" + "0000000000000007" + "0002" + "0000ea60" + "01"
        + "02" + "02" + b"a".hex() + "02" + "00000000" + "00"
        + "0000000000000005" + "0000000000000004" + "00"
    )  # fmt: skip
    key, _ = encode(TransactionRecord("id", None))
    value = StoredTransaction(7, 2, 60_000, State.ONGOING, (A,), 5, 4)
    assert decode(key, data) == TransactionRecord("id", value)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\0", b""), (b"\0\0\0\x02id", b"\0\x09"), (b"\0\0\0\x02id", b"\0\0\1")],
)
def test_what_is_no_record(key: bytes | None, value: bytes) -> None:
    with pytest.raises(BadRecordError):
        decode(key, value)
    assert decode(b"\0\x09", value) is None
