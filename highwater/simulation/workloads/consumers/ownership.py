"""What the members of a consumer group were told and have said, and the rules about it.

A member owns a partition from the answer that gave it until the member sends that it has given the
partition up.  No other may get it meanwhile (G3), unless the coordinator may have put the member
out: its session is over, or its time to give up partitions.  A member that was put out and does not
know may go on thinking that it owns partitions, but its commits are refused (G4); and one that was
neither silent nor slow is not put out (G5).

Only answers of a coordinator in office count: ZooKeeper named the broker as the leader, in one
leader epoch, from before the request until the answer.  A replaced coordinator that does not know
it answers from its old knowledge, as Kafka's does.

A heartbeat whose answer is lost may come late, after the member's next one, and Kafka takes it
where its epoch is still the member's: then it may report a partition as given up that the member
has got since.  That is counted, and not held against the coordinator.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from highwater.simulation.rules.allowed_losses import GROUPS, Moment, log_of, lost_between, moment
from highwater.simulation.rules.findings import Book
from highwater.simulation.workloads.consumers.consumer_client import (
    NAME,
    REBALANCE_MS,
    Described,
    Place,
    Report,
    Told,
)
from highwater.simulation.workloads.plain_client import UNKNOWN_OUTCOME

SESSION_MS = 2500
PUT_OUT = frozenset(
    {
        "FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND", "STALE_MEMBER_EPOCH",
        "ILLEGAL_GENERATION",
    }
)  # fmt: skip
"""Answers by which a member learns that it is not where it thought."""


class Term(NamedTuple):
    """Who coordinates the group, by ZooKeeper."""

    host: str
    leader_epoch: int


@dataclass(eq=False)
class Life:
    """One member id through its time in the group."""

    member_id: str
    since: Moment
    """The state of the groups' log before it joined."""
    epoch: int = 0
    heard_s: float = -inf
    """When it sent the last heartbeat that a coordinator in office has answered."""
    unsure_s: float | None = None
    """When it sent the first heartbeat since then."""
    must_s: float | None = None
    """When it sent the heartbeat that was answered with less than it owned, until it has reported
    that it gave up the rest, and was heard."""
    owned: frozenset[Place] = frozenset()
    """What it was given and has not reported as given up."""
    late: list[frozenset[Place] | None] = field(default_factory=list)
    """What it said in heartbeats that may still come."""
    out: bool = False
    """Whether it is known to be out of the group: it has left, or another owns what it did not
    give up."""


class Call(NamedTuple):
    """A heartbeat, a commit or a question of a member, before its answer."""

    life: Life
    sent_s: float
    in_office: bool
    """Whether the broker that is asked is the coordinator, by ZooKeeper."""
    term: Term
    unsure: bool
    """Whether an earlier heartbeat had no answer."""
    newest: int
    """The highest member epoch that anybody was told before."""
    before: Moment


class Owners:
    """The members of one group by what they know together."""

    def __init__(self, rules: Book, count: Counter[str]) -> None:
        self.rules = rules
        self.count = count
        self.lives: list[Life] = []
        self.newest = 0
        """The highest epoch that a member, or one who looks on, was told by a coordinator in
        office."""
        self._newest_told = (Moment(0, 0), Moment(0, 0))

    def now(self) -> Moment:
        return moment(self.rules, GROUPS, NAME)

    def lost(self, since: Moment, until: Moment | None = None) -> bool:
        return lost_between(self.rules, GROUPS, NAME, since, until)

    def term(self) -> Term:
        truth = log_of(self.rules, GROUPS, NAME)
        if truth is None or truth.state is None:
            return Term("", -1)
        return Term(f"broker-{truth.state.leader}", truth.state.leader_epoch)

    # -- what is said ---------------------------------------------------------------------------

    def begins(self, member_id: str) -> Life:
        life = Life(member_id, self.now())
        self.lives.append(life)
        return life

    def asks(self, life: Life, host: str) -> Call:
        """A member is about to ask this broker something."""
        self._forget_what_was_lost()
        term, unsure = self.term(), life.unsure_s is not None
        now_s = self.rules.now()
        return Call(life, now_s, host == term.host, term, unsure, self.newest, self.now())

    def beats(self, life: Life, report: Report, host: str) -> Call:
        """A member is about to send a heartbeat."""
        call = self.asks(life, host)
        if report.joins:
            life.since, life.epoch, life.out = call.before, 0, False
        if life.unsure_s is None:
            life.unsure_s = call.sent_s
        if report.owned is not None:
            life.owned &= report.owned
        return call

    def leaves(self, life: Life) -> None:
        """A member is about to leave, or to come back under another member id."""
        life.owned = frozenset()

    def in_office(self, call: Call) -> bool:
        """Whether the broker that was asked has coordinated the group all the time."""
        return call.in_office and self.term() == call.term

    # -- what is answered -----------------------------------------------------------------------

    def told(self, call: Call, report: Report, told: Told) -> None:
        """A heartbeat was answered."""
        life = call.life
        if not self.in_office(call):
            self.count["consumer answers of former coordinators"] += 1
            return
        self.count["consumer heartbeats"] += 1
        self._check_epoch(call, report, told)
        life.epoch = told.epoch
        self._note_epoch(told.epoch, call.before)
        since_s = call.sent_s if life.unsure_s is None else life.unsure_s
        life.heard_s, life.unsure_s = call.sent_s, None
        if told.assigned is not None:
            gone = life.owned - told.assigned
            life.must_s = None if not gone else since_s if life.must_s is None else life.must_s
            for place in sorted(told.assigned - life.owned):
                self._gains(life, place)
            life.owned |= told.assigned
        elif report.owned is not None:
            life.must_s = None

    def failed(self, call: Call, report: Report | None, error: str) -> None:
        """A heartbeat (with its report), a commit or a question was refused, or had no answer."""
        life = call.life
        if report is not None and error in UNKNOWN_OUTCOME:
            life.late.append(report.owned)
        if error not in PUT_OUT or life.epoch == 0:
            return
        self.count[f"consumer {error}"] += 1
        if self._may_be_out(life) or life.out or call.unsure or not self.in_office(call):
            return
        if not (life.late or self.lost(life.since)):
            ago = self.rules.now() - life.heard_s
            self.rules.broken(
                "G5",
                f"{life.member_id} was answered in epoch {life.epoch} {ago:.2f} s ago, has given "
                f"up in time what it must, and gets {error}",
            )

    def stale(self, life: Life, epoch: int) -> bool:
        """Whether a commit of this member in this epoch must be refused from now on."""
        return life.out or epoch < life.epoch

    def committed(self, call: Call, epoch: int, *, stale: bool) -> None:
        """G4: a commit was acknowledged; `stale`: it had to be refused when it was sent."""
        if stale and not self.lost(call.life.since):
            known = "is out of the group" if call.life.out else f"has come to {call.life.epoch}"
            self.rules.broken(
                "G4",
                f"a commit of {call.life.member_id} in epoch {epoch} was taken, and it {known}",
            )

    def left(self, call: Call) -> None:
        call.life.out = self.in_office(call)

    def described(self, term: Term, newest: int, before: Moment, found: Described) -> None:
        """G5: a group was described by the broker that coordinated it in that term."""
        if self.term() != term:
            return
        self.count["consumer groups described"] += 1
        epochs = [epoch for epoch, _ in found.members.values()]
        if max([found.target_epoch, *epochs]) > found.epoch:
            self._wrong(f"the group is in epoch {found.epoch}, and has come to {found}")
        if found.epoch < newest and not self.lost(*self._newest_told):
            self._wrong(f"the group is in epoch {found.epoch}, and was in {newest}")
        owners: dict[Place, str] = {}
        for member_id, (_, assigned) in found.members.items():
            for place in assigned:
                other = owners.setdefault(place, member_id)
                if other != member_id:
                    self.rules.broken("G3", f"{place} is {other}'s and {member_id}'s: {found}")
        self._note_epoch(found.epoch, before)

    # -- the rules ------------------------------------------------------------------------------

    def _wrong(self, what: str) -> None:
        self.rules.broken("G5", what)

    def _forget_what_was_lost(self) -> None:
        if self.newest and self.lost(*self._newest_told):
            self.newest = 0  # epochs may come a second time

    def _note_epoch(self, epoch: int, before: Moment) -> None:
        if epoch > self.newest:
            self.newest, self._newest_told = epoch, (before, self.now())

    def _check_epoch(self, call: Call, report: Report, told: Told) -> None:
        life = call.life
        if self.lost(life.since) or self.lost(*self._newest_told):
            return
        if told.epoch < life.epoch:
            self._wrong(f"{life.member_id} was in epoch {life.epoch}, and is told {told.epoch}")
        if report.joins and told.epoch < call.newest:
            self._wrong(
                f"{life.member_id} joins in epoch {told.epoch}, and the group was in {call.newest}"
            )

    def _gains(self, life: Life, place: Place) -> None:
        """G3: a member was given a partition."""
        self.count["consumer partitions given"] += 1
        for other in self.lives:
            if other is life or place not in other.owned:
                continue
            if self.lost(other.since):
                self.count["consumer owners lost as expected"] += 1
            elif self._may_be_out(other):
                self.count["consumer owners put out"] += 1
                other.out = True
            elif any(said is not None and place not in said for said in other.late):
                self.count["consumer owners with a late report"] += 1
            else:
                ago = self.rules.now() - other.heard_s
                self.rules.broken(
                    "G3",
                    f"partition {place[1]} of {place[0]} was given to {life.member_id} in epoch "
                    f"{life.epoch}; {other.member_id} has it in epoch {other.epoch}, and was heard "
                    f"{ago:.2f} s ago",
                )
            other.owned -= {place}

    def _may_be_out(self, life: Life) -> bool:
        """Whether a time-out of the member may be over: its session, or the time to give up what an
        answer, perhaps a lost one, no longer named."""
        now_s = self.rules.now()
        begun = [at for at in (life.must_s, life.unsure_s) if at is not None]
        slow = bool(begun) and now_s - min(begun) >= REBALANCE_MS / 1000
        return slow or now_s - life.heard_s >= SESSION_MS / 1000
