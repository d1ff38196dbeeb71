"""A leader's view of one follower: how far it has read, and when it was last caught up.

A follower's LEO is the offset that it asks for: a fetch from offset o says that everything below o
is in its log.  It is caught up at a time t when it had read up to the LEO that the leader had at t.
A follower that reads steadily but is always one fetch behind counts as caught up at its previous
fetch (Kafka's Replica.scala).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from highwater.kafka.wire.fetch import FetchPartition
    from highwater.world.api import Buffer

UNKNOWN_OFFSET = -1


class FeedPort(Protocol):
    """A feed, as a partition sees it (`feed.Feed`)."""

    def stir(self, fed: Any, *, ends_wait: bool = True) -> None: ...

    @property
    def waits(self) -> bool: ...


class FedPort(Protocol):
    """A partition in a feed (`feed.Fed`)."""

    rests: bool
    asked: FetchPartition
    fresh: Buffer | None

    @property
    def feed(self) -> FeedPort: ...


@dataclass(slots=True)
class Follower:
    """One follower.  Times are the leader's, in monotonic milliseconds."""

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = 0
    last_fetch_ms: int = 0
    last_fetch_leader_end: int = 0
    fed: FedPort | None = field(default=None, compare=False, repr=False)
    """The partition in the feed by which the follower fetches.  While it rests, fetches pass it
    over, and the times above stand still."""

    def fetched(self, offset: int, log_start: int, leader_end: int, now_ms: int) -> None:
        """Notes a fetch from `offset` while the leader's LEO was `leader_end`."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset, self.log_start_offset = offset, log_start
        self.last_fetch_leader_end, self.last_fetch_ms = leader_end, now_ms

    def caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= max_lag_ms

    def new_term(self, new_leader: bool, in_isr: bool, leader_end: int, now_ms: int) -> None:
        """Begins a new leader epoch.  A member of the ISR gets its full time to fetch; no other may
        hold the HW back.  A new leader does not know yet what the follower's log holds."""
        self.last_caught_up_ms = now_ms if in_isr else -(1 << 60)
        if new_leader:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end = leader_end
            self.last_fetch_ms = now_ms if in_isr else -(1 << 60)
