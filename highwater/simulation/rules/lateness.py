"""L6: while all is well, each wait ends for its own reason, and in time.

All is well while every broker is registered, every partition has its full ISR, no fault is active,
and none of this and no controller has changed for GRACE_S.  Then neither the network nor a machine
excuses a wait, so there is a bound for each kind:

* a request of a client, from its first byte to its answer; a Fetch may also wait for news;
* a committed record, until its Produce is answered, and until a Fetch that waits for it is;
* an appended record, until the HW has passed it, and a HW and a log start, until each follower has
  them;
* a state in ZooKeeper, until every broker's metadata has it;
* the decision on a transaction, until all of its markers are written;
* a member's first JoinGroup, until it has its assignment, if no member of its group is away;
* and no ISR shrinks.

There is no bound for a long poll without news, a single JoinGroup or SyncGroup (a rebalance waits
for silent members until their sessions are over), a session or transaction whose owner is gone, and
any wait for a partition whose leader or replicas have changed within OF_PARTITION_S.

A share of the seeds (`_calm` in `seed_run`) goes on for a while when the faults are over, so that
there is such a time.  The longest wait of each kind is kept in `longest`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from highwater.broker.coordinator.transaction.records import State
from highwater.kafka.topic_names import GROUP_METADATA_TOPIC as GROUPS

if TYPE_CHECKING:
    from highwater.broker.server import Broker
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.rules.agreed_log import PartitionTruth

    Brokers = Mapping[int, Broker]

GRACE_S = 8.0
"""Longer than it takes until sessions, and requests between brokers, time out."""
OF_PARTITION_S = 1.5
REQUEST_S, NEWS_S, FOLLOWS_S, KNOWN_S, MARKERS_S, SEATED_S = 0.8, 0.1, 1.0, 3.0, 2.0, 1.5
"""The bounds, in the order of the module's docstring."""
SLOWEST = 200_000
"""The least bytes a second that a connection with a small window carries."""
POLL_S = 0.1
UNBOUNDED = frozenset((11, 14))
"""The API keys of requests without a bound: JoinGroup, SyncGroup."""


class _Book(Protocol):
    """The parts of `findings.Book` (which has the `Lateness`) that are needed here."""

    now: Callable[[], float]
    partitions: dict[TopicPartition, PartitionTruth]
    deleting: set[str]

    def broken(self, rule: str, what: str) -> None: ...


class _Seen(NamedTuple):
    """A leader's view at one moment."""

    at: float
    end: int
    hw: int
    log_start: int


class Lateness:
    """The waits of one run."""

    def __init__(self, book: _Book) -> None:
        self._book = book
        self._disturbed = 0.0
        self.under_way: Callable[[], bool] = lambda: False
        """Whether a fault is active."""
        self.registered: Callable[[], bool] = lambda: True
        """Whether all brokers are registered."""
        self.may_wait: frozenset[str] = frozenset()
        """Clients that a quota may delay."""
        self.longest: dict[str, float] = {}
        self.examined: Counter[str] = Counter()
        self._views: dict[TopicPartition, deque[_Seen]] = {}
        self._deciding: dict[tuple[int, str], tuple[object, float]] = {}
        self._joining: dict[tuple[str, str], float] = {}
        """(group, member) -> since when it has waited for an assignment."""
        self._silent: dict[str, float] = {}
        """Group -> until when its members may have to wait for one that is silent."""

    # -- when all is well -----------------------------------------------------------------------

    def disturb(self) -> None:
        """Notes that something has changed that may excuse a wait."""
        self._disturbed = self._book.now()

    def well_since(self, began: float) -> bool:
        """Whether all was well at that time, and has been since."""
        if began - self._disturbed < GRACE_S or self.under_way() or not self.registered():
            return False
        return all(self._whole(truth) for truth in self._book.partitions.values())

    def _whole(self, truth: PartitionTruth) -> bool:
        state = truth.state
        return state is not None and state.leader >= 0 and set(state.isr) == set(truth.assigned)

    def _steady(self, tp: TopicPartition, began: float) -> bool:
        truth = self._book.partitions.get(tp)
        return truth is not None and began - truth.changed >= OF_PARTITION_S

    def _took(self, kind: str, seconds: float, bound: float, what: str) -> None:
        self.examined[kind] += 1
        self.longest[kind] = max(seconds, self.longest.get(kind, 0.0))
        if seconds > bound:
            self._book.broken("L6", f"{what}: {seconds:.3f} s, and all was well")

    # -- what clients wait for ------------------------------------------------------------------

    def called(self, api_key: int, name: str, client: str, began: float) -> None:
        """Checks a request that has ended, in whatever way."""
        if api_key not in UNBOUNDED and client not in self.may_wait and self.well_since(began):
            took = self._book.now() - began
            self._took("a request", took, REQUEST_S, f"{client} waited for {name}")

    def answered(
        self,
        what: str,
        client: str,
        places: Mapping[TopicPartition, int],
        began: float,
        size: int = 0,
    ) -> None:
        """Checks an answer that had to wait until these offsets were below the HWs."""
        if client in self.may_wait:
            return
        if not self.well_since(began) or not all(self._steady(tp, began) for tp in places):
            return
        due = [self._passed(tp, offset) for tp, offset in places.items()]
        if None not in due:
            took = self._book.now() - max([began, *(at for at in due if at is not None)])
            bound = NEWS_S + size / SLOWEST
            self._took(what, took, bound, f"{what} of {places} came after the commit")

    def fetched(
        self, client: str, tp: TopicPartition, offset: int, began: float, size: int
    ) -> None:
        """Checks a Fetch from this offset on that was answered with `size` bytes.  Only news
        counts: older records may have to come from the disk."""
        passed = self._passed(tp, offset)
        if passed is not None and passed > began:
            self.answered("a Fetch", client, {tp: offset}, began, size)

    def _passed(self, tp: TopicPartition, offset: int) -> float | None:
        """When the HW passed this offset; None if it has not."""
        truth = self._book.partitions.get(tp)
        marks = truth.marks if truth is not None else []
        first = bisect_right(marks, offset, key=lambda mark: mark[0])
        return marks[first][1] if first < len(marks) else None

    def silent(self, group: str, seconds: float) -> None:
        """Notes that a member may be silent for `seconds`; after that it is out of its group."""
        self._silent[group] = max(self._silent.get(group, 0.0), self._book.now() + seconds)

    def joins(self, group: str, who: str) -> None:
        """Notes that a member requests an assignment, perhaps again, as an answer told it to."""
        self._joining.setdefault((group, who), self._book.now())

    def seated(self, group: str, who: str) -> None:
        """Notes that a member has its assignment."""
        self._waited_to_sit(group, who, self._joining.pop((group, who)))

    def _waited_to_sit(self, group: str, who: str, began: float) -> None:
        """Checks a member's wait, counted from when all was well and no member was silent."""
        moved = [t.changed for tp, t in self._book.partitions.items() if tp.topic == GROUPS]
        excused = [self._disturbed + GRACE_S, self._silent.get(group, 0.0)]
        since = max([began, *excused, *(at + OF_PARTITION_S for at in moved)])
        now = self._book.now()
        if since < now and self.well_since(now):
            what = f"{who} waited to be assigned partitions in {group}"
            self._took("an assignment", now - since, SEATED_S, what)

    def shrunk(self, tp: TopicPartition, who: str) -> None:
        """Checks that an ISR may lose a member; the partition still has its former state."""
        now = self._book.now()
        if self.well_since(now):
            self._book.broken("L6", f"{who} takes a member out of the ISR of {tp}, and all is well")

    # -- what brokers wait for ------------------------------------------------------------------

    async def watch(self, brokers: Callable[[], Brokers], longest_s: float, calm_s: float) -> bool:
        """Looks at all brokers until all has been well for `calm_s`; False if that is never."""
        deadline, looked = self._book.now() + longest_s, 0
        while self._book.now() < deadline:
            now = self._book.now()
            if self.well_since(now):
                self._look(brokers(), now)
                looked += 1
            else:
                self._views.clear()
                self._deciding.clear()
            if looked * POLL_S >= calm_s:
                return True
            await trio.sleep(POLL_S)
        return False

    def _look(self, brokers: Brokers, now: float) -> None:
        for tp, truth in self._book.partitions.items():
            leader = brokers.get(truth.state.leader) if truth.state is not None else None
            led = leader.services.replicas.partitions.get(tp) if leader is not None else None
            if led is None or led.log is None or not led.is_leader or not self._steady(tp, now):
                self._views.pop(tp, None)
                continue
            views = self._views.setdefault(tp, deque())
            log = led.log
            views.append(_Seen(now, log.log_end_offset, led.high_watermark, log.log_start_offset))
            while len(views) > 1 and now - views[1].at >= FOLLOWS_S:
                views.popleft()
            if now - views[0].at >= FOLLOWS_S:
                self._followed(tp, views[0], views[-1], brokers)
        for number, broker in brokers.items():
            self._knows(number, broker, now)
            self._decided(number, broker, now)
        self.look_at_groups()

    def look_at_groups(self) -> None:
        """Looks at the members that wait for their assignment."""
        for (group, who), began in self._joining.items():
            self._waited_to_sit(group, who, began)

    def _followed(self, tp: TopicPartition, then: _Seen, now: _Seen, brokers: Brokers) -> None:
        self.examined["a follower"] += 1
        if now.hw < then.end:
            what = f"was appended {now.at - then.at:.1f} s ago, and the HW is {now.hw}"
            self._book.broken("L6", f"{tp}: what lies below {then.end} {what}")
        for number, broker in brokers.items():
            replica = broker.services.replicas.partitions.get(tp)
            if replica is None or replica.log is None:
                continue
            has = replica.high_watermark, replica.log.log_start_offset
            if has[0] < then.hw or has[1] < then.log_start:
                was = f"{then.hw} and {then.log_start} {now.at - then.at:.1f} s ago"
                what = f"has the HW and log start {has}, and its leader's were {was}"
                self._book.broken("L6", f"{tp}: broker-{number} {what}")

    def _knows(self, number: int, broker: Broker, now: float) -> None:
        for tp, truth in self._book.partitions.items():
            known, state = broker.services.metadata.partition(tp), truth.state
            if state is None or now - truth.changed < KNOWN_S or tp.topic in self._book.deleting:
                continue
            self.examined["knowledge"] += 1
            if known is None or (known.leader, known.leader_epoch, set(known.isr)) != (
                state.leader, state.leader_epoch, set(state.isr),
            ):  # fmt: skip
                ago = f"{now - truth.changed:.1f} s after it became {state}"
                self._book.broken("L6", f"broker-{number} knows {tp} as {known}, {ago}")

    def _decided(self, number: int, broker: Broker, now: float) -> None:
        for shard in broker.services.transactions.shards.values():
            for name, transaction in shard.transactions.items() if shard.leads else ():
                self.examined["a decision"] += 1
                stored = transaction.stored
                if stored is None or stored.state not in (
                    State.PREPARE_COMMIT, State.PREPARE_ABORT,
                ):  # fmt: skip
                    self._deciding.pop((number, name), None)
                    continue
                before, since = self._deciding.get((number, name), (None, now))
                if before != stored:
                    self._deciding[number, name] = stored, now
                elif now - since > MARKERS_S:
                    what = f"has been {stored.state.name} for {now - since:.1f} s"
                    self._book.broken("L6", f"transaction {name} on broker-{number} {what}")
