"""What the members of a share group were given and have said, and the rules about it.

These are the checks S2, S3 and S4 of real runs over again, as answers come in, and stricter where
the simulation knows more: whose session is open, and which leader is in office.

* S2: a record whose end was answered (accepted or rejected) is given to nobody who asks afterwards.
* S3: a record has one member until its lock has ended, or the member has said something of it, or
  its session has ended; and nobody's acknowledgement is taken when another has got the record from
  a leader in office.
* S4: a delivery count is within the limit, and above that of a release that was answered.

Only a leader in office counts for S2 and S4: ZooKeeper named the broker as the leader, in one
leader epoch, from before the request until the answer.  A deposed leader that does not know it
gives records from its old knowledge, as Kafka's does, and renews locks, which nothing stores; its
acknowledgements count, as they are stored.
Careless power losses are excused by `allowed_losses`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from highwater.kafka.topic_names import SHARE_GROUP_STATE_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.simulation.rules.allowed_losses import (
    GROUPS,
    Moment,
    lost_between,
    lost_since,
    moment,
)
from highwater.simulation.workloads.sharing.share_client import (
    ACCEPT,
    GAP,
    NAME,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    Ack,
    Given,
    Place,
)

if TYPE_CHECKING:
    from highwater.simulation.rules.findings import Book

LOCK_MS, DELIVERIES = 1500, 4
"""group.share.record.lock.duration.ms, and group.share.delivery.count.limit"""
ROUNDED_MS = 2
"""Brokers count in milliseconds, rounded down."""
ENDS = (GAP, ACCEPT, REJECT)


class Since(NamedTuple):
    """The states of the logs on which the knowledge of a record rests."""

    state: Moment
    groups: Moment
    losses: int


class Call(NamedTuple):
    """A request of a member, before its answer."""

    member: str
    host: str
    sent_s: float
    terms: dict[int, tuple[str, int]]
    """Partition -> its leader by ZooKeeper, and the leader epoch."""
    before: dict[int, Since]


class Inside(NamedTuple):
    """Who holds the locks of a partition at one broker: two answers with the same objects come from
    one leader's term, and one session."""

    led: Any
    session: Any


@dataclass(eq=False, slots=True)
class Lock:
    """A record that a member was given."""

    member: str
    since_s: float
    """When it sent the request."""
    until_s: float
    """When it had the answer."""
    count: int
    inside: Inside
    got_s: tuple[float, float]
    """The same times, which no renewal changes."""
    office: bool
    """Whether a leader in office gave it."""
    said: bool = False
    """Whether it has sent an acknowledgement of it since, which may end the lock."""


class Settled(NamedTuple):
    """An answered acknowledgement."""

    at_s: float
    which: int
    times: int
    since: Since


class Ledger:
    def __init__(self, rules: Book, count: Counter[str]) -> None:
        self.rules = rules
        self.count = count
        self.locks: dict[Place, dict[str, Lock]] = defaultdict(dict)
        self.ended_by: dict[Place, dict[str, None]] = defaultdict(dict)
        """Who has sent an acknowledgement that ends a record, with whatever outcome."""
        self.done: dict[Place, Settled] = {}
        self.released: dict[Place, Settled] = {}
        self.highest: Counter[Place] = Counter()
        """The highest delivery count that any leader or member has had of a record."""
        self.key_of: Callable[[int], str] = lambda partition: ""
        self.inside: Callable[[str, str, int], Inside] = lambda *_: Inside(None, None)
        """What a broker holds for a member and a partition."""
        self.passed_over: Callable[[Place], bool] = lambda place: False
        """Whether the group gets a record never, as its transaction was aborted."""

    # -- what is known of the logs --------------------------------------------------------------

    def since(self, partition: int) -> Since:
        truth = self.rules.partitions.get(TopicPartition(TOPIC, partition))
        return Since(
            moment(self.rules, SHARE_GROUP_STATE_TOPIC, self.key_of(partition)),
            moment(self.rules, GROUPS, NAME),
            len(truth.given_up) if truth is not None else 0,
        )

    def lost(self, place: Place, since: Since) -> bool:
        """Whether what was known then of this record may be lost."""
        partition, offset = place
        return (
            lost_between(self.rules, SHARE_GROUP_STATE_TOPIC, self.key_of(partition), since.state)
            or lost_between(self.rules, GROUPS, NAME, since.groups)
            or lost_since(self.rules, TopicPartition(TOPIC, partition), offset, since.losses)
        )

    def ever_lost(self, place: Place) -> bool:
        """Whether anything was lost on which a record's state may have rested."""
        nothing = Moment(0, 0)
        return self.lost(place, Since(nothing, nothing, 0))

    def term(self, partition: int) -> tuple[str, int]:
        truth = self.rules.partitions.get(TopicPartition(TOPIC, partition))
        if truth is None or truth.state is None:
            return "", -1
        return f"broker-{truth.state.leader}", truth.state.leader_epoch

    def may_end(self, place: Place) -> bool:
        """Whether a record may be acknowledged or archived: a member has said so, it was delivered
        as often as may be, or the group does not get it."""
        said = bool(self.ended_by.get(place)) or self.highest[place] >= DELIVERIES
        return said or self.passed_over(place)

    # -- what is said ---------------------------------------------------------------------------

    def asks(self, member: str, host: str, partitions: Sequence[int], acks: Sequence[Ack]) -> Call:
        """A member is about to fetch from these partitions, and to acknowledge."""
        named = sorted({*partitions, *(ack.partition for ack in acks)})
        for ack in acks:
            for place, kind in ack.places():
                if kind in ENDS:
                    self.ended_by[place][member] = None
                lock = self.locks[place].get(member)
                if lock is not None and kind != RENEW:
                    lock.said = True
        return Call(
            member,
            host,
            self.rules.now(),
            {p: self.term(p) for p in named},
            {p: self.since(p) for p in named},
        )

    def in_office(self, call: Call, partition: int) -> bool:
        """Whether the broker that was asked has led the partition all the time."""
        term = call.terms.get(partition, ("", -1))
        return term[0] == call.host and self.term(partition) == term

    # -- what is answered -----------------------------------------------------------------------

    def given(self, call: Call, given: Given) -> None:
        """A member was given records."""
        now_s = self.rules.now()
        inside = self.inside(call.host, call.member, given.partition)
        office = self.in_office(call, given.partition)
        for offset in range(given.first, given.last + 1):
            place = given.partition, offset
            self.count["share records given"] += 1
            self.count["share records given again"] += given.times > 1
            self.highest[place] = max(self.highest[place], given.times)
            got_s = call.sent_s, now_s
            lock = Lock(call.member, *got_s, given.times, inside, got_s, office)
            if not 1 <= given.times <= DELIVERIES:
                self._broken("S4", place, f"{call.member} is told delivery count {given.times}")
            if office:
                self._check_settled(place, lock)
            self._check_locks(place, lock)
            self.locks[place][call.member] = lock

    def _check_settled(self, place: Place, lock: Lock) -> None:
        done, released = self.done.get(place), self.released.get(place)
        if done is not None and lock.since_s > done.at_s and not self.lost(place, done.since):
            ago = lock.until_s - done.at_s
            what = f"{lock.member} gets it; it was ended {ago:.2f} s ago ({done.which})"
            self._broken("S2", place, what)
        if released is None or lock.since_s <= released.at_s or self.lost(place, released.since):
            return
        if lock.count <= released.times:
            what = f"it was released at delivery count {released.times}"
            self._broken("S4", place, f"{lock.member} gets it with {lock.count}; {what}")

    def _check_locks(self, place: Place, lock: Lock) -> None:
        """S3: nobody else's lock can still have been there when this one began."""
        longest_s = (LOCK_MS - ROUNDED_MS) / 1000
        for other in self.locks[place].values():
            if other.said or other.member == lock.member or other.inside.session is None:
                continue
            apart_s = max(lock.until_s - other.since_s, other.until_s - lock.since_s)
            same = other.inside.led is lock.inside.led and not other.inside.session.closed
            if same and apart_s < longest_s:
                self._broken(
                    "S3", place, f"{lock.member} gets it, {apart_s:.2f} s after {other.member}"
                )

    def acknowledged(self, call: Call, ack: Ack) -> None:
        """An acknowledgement was answered without an error."""
        now_s, since = self.rules.now(), call.before[ack.partition]
        for place, kind in ack.places():
            lock = self.locks[place].get(call.member)
            if lock is None:
                continue
            self.count[f"share acknowledgements of type {kind}"] += 1
            if kind == RENEW:
                lock.since_s, lock.until_s = call.sent_s, now_s
                continue
            self._check_owner(place, lock, call)
            settled = Settled(now_s, kind, lock.count, since)
            if kind in ENDS:
                self.done.setdefault(place, settled)
            elif kind == RELEASE:
                self.released[place] = settled

    def _check_owner(self, place: Place, lock: Lock, call: Call) -> None:
        """S3: another one has got the record meanwhile.  What lies below the share-partition's
        start is acknowledged by anybody, to no effect."""
        below = self.highest[place] >= DELIVERIES or set(self.ended_by[place]) - {call.member}
        for other in self.locks[place].values():
            later = other.got_s[0] > lock.got_s[1] and other.got_s[1] < call.sent_s
            if other.member != call.member and later and other.office and not below:
                self._broken(
                    "S3", place, f"{other.member} got it, and then {call.member}'s word was taken"
                )

    def _broken(self, rule: str, place: Place, what: str) -> None:
        self.rules.broken(rule, f"{TOPIC}-{place[0]}@{place[1]}: {what}")
