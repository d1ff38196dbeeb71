"""A share group under faults, and what its rules call wrong."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from highwater.broker.coordinator.share.records import Snapshot, StateRecord, Update, encode
from highwater.broker.share.acquisition import Fetched, LogBatch, Wanted
from highwater.broker.share.in_flight import RecordState
from highwater.broker.share.persister import NO_COUNT, SharePartitionKey, StateBatch
from highwater.broker.share.share_partition import Limits, SharePartition
from highwater.kafka.topic_names import SHARE_GROUP_STATE_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import Record, build_batch
from highwater.simulation.faults.joints import OF_SHARES
from highwater.simulation.options import Options
from highwater.simulation.rules.findings import Book
from highwater.simulation.rules.mirror import parse
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command
from highwater.simulation.workloads.sharing.share_client import (
    ACCEPT,
    NAME,
    RELEASE,
    RENEW,
    TOPIC,
    Ack,
    Given,
)
from highwater.simulation.workloads.sharing.share_inspector import IN_FLIGHT, Inspector
from highwater.simulation.workloads.sharing.share_ledger import (
    DELIVERIES,
    LOCK_MS,
    Inside,
    Ledger,
)

HOST = ""
"""The leader by a tree that has none."""
LOCK_S = LOCK_MS / 1000
KEY = SharePartitionKey(NAME, bytes(16), 0)


@pytest.mark.parametrize("seed", range(2))
def test_members_take_everything(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=12, pace=0.5, share_groups=True))
    assert outcome.violation is None, str(outcome.violation)
    seen = outcome.operations
    assert seen["share records given"] >= 50
    assert seen["share records given again"] >= 10
    assert seen[f"share acknowledgements of type {ACCEPT}"] >= 30
    assert seen[f"share acknowledgements of type {RELEASE}"] >= 3
    assert seen["share groups drained"] == seen["share groups empty at the end"] == 1
    assert "--share-groups" in replay_command(seed, Options(share_groups=True))


def test_joints_of_shares_are_played() -> None:
    options = Options(seconds=20, pace=0.3, share_groups=True, joints=True)
    outcome = simulate(5, options)
    assert outcome.violation is None, str(outcome.violation)
    assert sum(outcome.faults[name] for name in OF_SHARES) >= 2


class _Book(Book):
    """Nothing is known of any log."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.partitions = {}
        self.now_s = 100.0
        self.now = lambda: self.now_s

    def broken(self, rule: str, what: str) -> None:
        self.rules.append(rule)


class _Members:
    """Members of whom each request takes 0.1 s; ZooKeeper names nobody, and nobody is asked."""

    def __init__(self) -> None:
        self.book: Any = _Book()
        self.ledger = Ledger(self.book, Counter())
        self.led = object()
        self.sessions: dict[str, Any] = {}
        self.ledger.inside = lambda _, member, __: Inside(self.led, self.session(member))

    def session(self, member: str) -> Any:
        return self.sessions.setdefault(member, SimpleNamespace(closed=False))

    def gets(self, member: str, count: int = 1, offset: int = 7) -> None:
        self.book.now_s += 0.01
        call = self.ledger.asks(member, HOST, [0], ())
        self.book.now_s += 0.1
        self.ledger.given(call, Given(0, offset, offset, count))

    def says(self, member: str, kind: int, *, answered: bool = True, offset: int = 7) -> None:
        ack = Ack(0, offset, offset, (kind,))
        self.book.now_s += 0.01
        call = self.ledger.asks(member, HOST, (), [ack])
        self.book.now_s += 0.1
        if answered:
            self.ledger.acknowledged(call, ack)


@pytest.mark.parametrize(("answered", "rules"), [(True, ["S2"]), (False, [])])
def test_what_was_accepted_does_not_come_back(answered: bool, rules: list[str]) -> None:
    members = _Members()
    members.gets("a")
    members.says("a", ACCEPT, answered=answered)
    members.gets("b", 2)
    assert members.book.rules == rules


def test_a_deposed_leaders_records_prove_nothing() -> None:
    members = _Members()
    members.gets("a")
    members.says("a", ACCEPT)
    call = members.ledger.asks("b", "broker-9", [0], ())
    members.book.now_s += 0.1
    members.ledger.given(call, Given(0, 7, 7, 2))
    assert members.book.rules == []


@pytest.mark.parametrize(("count", "rules"), [(1, ["S4"]), (2, []), (DELIVERIES + 1, ["S4"])])
def test_a_release_counts(count: int, rules: list[str]) -> None:
    members = _Members()
    members.gets("a")
    members.says("a", RELEASE)
    members.gets("b", count)
    assert members.book.rules == rules


@pytest.mark.parametrize(
    ("waits_s", "what", "rules"),
    [
        (LOCK_S / 2, "", ["S3"]),
        (LOCK_S, "", []),
        (LOCK_S / 2, "closes", []),
        (LOCK_S / 2, "moves", []),
        (LOCK_S - 0.3, "renews", ["S3"]),
    ],
)
def test_a_record_has_one_member(waits_s: float, what: str, rules: list[str]) -> None:
    members = _Members()
    members.gets("a")
    members.book.now_s += waits_s
    if what == "closes":
        members.session("a").closed = True
    elif what == "moves":
        members.led = object()
    elif what == "renews":
        members.says("a", RENEW)
        members.book.now_s += LOCK_S / 2
    members.gets("b", 2)
    assert members.book.rules == rules


@pytest.mark.parametrize(("also", "rules"), [(False, ["S3"]), (True, [])])
def test_who_lost_a_record_does_not_end_it(also: bool, rules: list[str]) -> None:
    members = _Members()
    members.gets("a")
    members.book.now_s += LOCK_S
    members.gets("b", 2)
    if also:  # then it may lie below the start, where nothing is looked at
        members.says("b", ACCEPT, answered=False)
    members.says("a", ACCEPT)
    assert members.book.rules == rules


def test_a_renewal_at_a_deposed_leader_proves_nothing() -> None:
    """Seed 32 of `--share-groups`, a false alarm of S3."""
    members = _Members()
    members.gets("b")
    members.book.now_s += LOCK_S
    members.gets("a", 2)
    members.says("b", RENEW)
    members.says("a", ACCEPT)
    assert members.book.rules == []


@pytest.mark.parametrize(("host", "rules"), [("broker-9", []), (HOST, ["S3"])])
def test_what_a_deposed_leader_gives_takes_nothing_away(host: str, rules: list[str]) -> None:
    members = _Members()
    members.gets("a")
    members.book.now_s += LOCK_S
    call = members.ledger.asks("b", host, [0], ())
    members.book.now_s += 0.1
    members.ledger.given(call, Given(0, 7, 7, 2))
    members.says("a", ACCEPT)
    assert members.book.rules == rules


class _Leader:
    """A machine that the inspector looks at after each of its steps."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.members = _Members()
        self.book = self.members.book
        self.inspector = Inspector(self.members.ledger)
        self.machine = SharePartition(0, (), limits or Limits(IN_FLIGHT, DELIVERIES))
        self.hw = self.last_stable_offset = 1000
        self.gone: set[str] = set()
        tp = TopicPartition(TOPIC, 0)
        self.led: Any = SimpleNamespace(
            machine=self.machine, tp=tp, leader_epoch=-1, partition=self
        )
        self.book.partitions[tp] = None
        self.members.ledger.term = lambda partition: ("", -1)  # type: ignore[method-assign]
        self.members.ledger.ever_lost = lambda place: False  # type: ignore[method-assign]
        self.look()

    @property
    def high_watermark(self) -> int:
        return self.hw

    @property
    def services(self) -> Any:
        present = (m for m in ("a", "b") if m not in self.gone)
        sessions = {(NAME, m): self.members.session(m) for m in present}
        key = SharePartitionKey(NAME, b"", 0)
        led = _Hashed(self.led)
        self._hashed = getattr(self, "_hashed", led)
        share = SimpleNamespace(
            led={key: self._hashed}, sessions=SimpleNamespace(_sessions=sessions)
        )
        return SimpleNamespace(share=share)

    def look(self) -> None:
        self.inspector.look(1, self)  # type: ignore[arg-type]

    def acquires(self, member: str, last: int = 3, most: int = 4) -> None:
        until_ms = int(self.book.now() * 1000) + LOCK_MS
        wanted = Wanted(member, most, 100, False, until_ms)
        batches = [LogBatch(first, first + 3) for first in range(0, last, 4)]
        self.machine.acquire(Fetched(0, batches), wanted)
        self.look()

    def runs(self) -> Any:
        return list(self.machine._in_flight.runs())


class _Hashed:
    def __init__(self, led: Any) -> None:
        self.__dict__.update(vars(led))


def test_a_machine_that_does_what_members_say_is_right() -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.members.ledger.ended_by[0, 0]["a"] = None
    (run,) = leader.runs()
    leader.machine._in_flight.overlapping(0, 3)[0].cut(0, 0)[0].leave(RecordState.ACKNOWLEDGED)
    leader.look()
    leader.machine._advance_start()
    leader.look()
    assert (leader.machine.start_offset, leader.book.rules, run.first) == (1, [], 0)


def _log(*values: Snapshot | Update) -> Any:
    """A committed log of the share coordinator."""
    data = b""
    for offset, value in enumerate(values):
        key, stored = encode(StateRecord(KEY, value))
        data += bytes(build_batch([Record(key, stored, 1)], base_offset=offset))
    committed, _ = parse(data)
    return SimpleNamespace(committed=committed, given_up=[], exposed=len(values))


@pytest.mark.parametrize(
    ("batches", "rules"),
    [
        ((), ["S2"]),
        ((StateBatch(0, 3, RecordState.AVAILABLE, 1),), ["S2"]),
        ((StateBatch(0, 3, RecordState.ACKNOWLEDGED, 1),), []),
    ],
)
def test_what_is_acknowledged_is_stored(batches: tuple[StateBatch, ...], rules: list[str]) -> None:
    leader = _Leader()
    leader.members.ledger.key_of = lambda _: str(KEY)
    leader.book.partitions[TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)] = _log(
        Snapshot(0, 0, 0, 0, NO_COUNT, (), 0, 0), Update(0, 0, 0, NO_COUNT, batches)
    )
    leader.acquires("a", last=3)
    for offset in range(4):
        leader.members.ledger.ended_by[0, offset]["a"] = None
    leader.runs()[0].leave(RecordState.ACKNOWLEDGED)
    leader.look()
    assert leader.book.rules[:1] == rules


def test_a_record_that_nobody_ended_ends() -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.runs()[0].leave(RecordState.ARCHIVED)
    leader.look()
    assert set(leader.book.rules) == {"S1"}


def test_the_start_moves_over_a_record() -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.machine.start_offset = 2
    leader.look()
    leader.machine.start_offset = 1
    leader.look()
    assert leader.book.rules == ["S1", "S1", "S5"]


def test_a_lock_passes_to_another_member() -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.members.gets("a", offset=0)
    run = leader.runs()[0]
    run.member, run.count = "b", 2
    leader.look()
    assert leader.book.rules[:1] == ["S3"]


def test_a_session_ends_and_its_locks_stay() -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.gone.add("a")
    leader.look()
    assert leader.book.rules == ["S3"]


def test_a_session_ends_while_its_word_is_on_the_way() -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.runs()[0].change = object()
    leader.look()
    leader.gone.add("a")
    leader.runs()[0].change = None
    leader.look()
    assert leader.book.rules == []


@pytest.mark.parametrize(("only", "rules"), [(True, ["S5"]), (False, [])])
def test_nothing_of_an_open_transaction_is_acquired(only: bool, rules: list[str]) -> None:
    leader = _Leader()
    leader.inspector.read_committed = only
    leader.last_stable_offset = 2
    leader.acquires("a")
    assert leader.book.rules == rules


def test_a_lock_does_not_end() -> None:
    leader = _Leader()
    leader.acquires("a")
    for _ in range(20):
        leader.book.now_s += 0.2
        leader.look()
    assert set(leader.book.rules) == {"S3"}


@pytest.mark.parametrize(("count", "rules"), [(0, {"S4"}), (DELIVERIES + 1, {"S4"}), (2, set())])
def test_a_count_falls_or_passes_its_limit(count: int, rules: set[str]) -> None:
    leader = _Leader()
    leader.acquires("a")
    leader.members.session("a").closed = True
    leader.runs()[0].count = count
    leader.look()
    assert set(leader.book.rules) == rules


@pytest.mark.parametrize(
    ("last", "hw", "rules"), [(19, 20, []), (19, 19, ["S5"]), (23, 100, ["S5"])]
)
def test_a_share_partition_keeps_its_bounds(last: int, hw: int, rules: list[str]) -> None:
    leader = _Leader(Limits(100, DELIVERIES))
    leader.hw = hw
    leader.acquires("a", last, 100)
    assert leader.book.rules == rules
