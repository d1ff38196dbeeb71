"""The leader's side of incremental fetch sessions (KIP-227).  Pure; the caller passes in the time
and random numbers.

A session remembers the partitions that its client fetches and the offsets last answered, so that
requests carry only changes and answers only partitions with news.  A follower's session is its feed
(`feed`).  The cache is bounded (max.incremental.fetch.session.cache.slots).  When it is full, a new
session replaces the one that was unused longest if that has been idle for two minutes.  Otherwise a
follower's replaces the longest unused session of a consumer, and any other fetch is served without
a session (id 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.fetch import (
    CONSUMER_REPLICA_ID,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    Key,
    key_of,
    steady_fetch,
)

if TYPE_CHECKING:
    from highwater.broker.replica.feed import Feed

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICT_AFTER_MS = 120_000


@dataclass(slots=True, eq=False)
class FetchSession:
    """A consumer's session."""

    privileged: ClassVar[bool] = False
    """Whether the session is a follower's."""

    id: int
    epoch: int = 1
    last_used_ms: int = 0
    by_id: bool = False
    """Whether its client names topics by their ids."""
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    """(HW, LSO, log start offset) as last answered."""

    def next_asked(self, request: FetchRequest, now_ms: int) -> None:
        """Takes the changes of a request.  Raises ApiError: FETCH_SESSION_ID_NOT_FOUND for a
        follower's, FETCH_SESSION_TOPIC_ID_ERROR unless it names topics as the session does."""
        if request.replica_id != CONSUMER_REPLICA_ID:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.by_id != self.by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for key in request.forgotten:
            self.partitions.pop(key, None)
            self.told.pop(key, None)
        for p in request.partitions:
            self.partitions[key_of(p.tp, p.topic_id)] = p
        self.last_used_ms = now_ms

    def select(self, results: Iterable[FetchedPartition]) -> list[FetchedPartition]:
        """The results with records, an error, or offsets that the client does not know yet.

        Partitions with records move to the end of the order, so that none starves the others
        (KIP-74).
        """
        out = []
        for r in results:
            key = key_of(r.tp, r.topic_id)
            now = (r.high_watermark, r.last_stable_offset, r.log_start_offset)
            news = r.size or r.error or r.diverging is not None
            if news or self.told.get(key) != now:
                out.append(r)
                self.told[key] = now
                if r.size and key in self.partitions:
                    self.partitions[key] = self.partitions.pop(key)
        return out

    def close(self) -> None:
        """Nothing is left to do."""


class FetchSessions:
    """The cache.  `new_id` returns a random positive int32; `new_feed` makes a follower's session,
    given a session id and a replica id."""

    def __init__(
        self, slots: int, new_id: Callable[[], int], new_feed: Callable[[int, int], Feed]
    ) -> None:
        self._slots = slots
        self._new_id = new_id
        self._new_feed = new_feed
        self._sessions: dict[int, FetchSession | Feed] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def close(self, session: FetchSession) -> None:
        """Closes a new session whose id its client will never receive."""
        self._remove(session.id)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def steady(self, body: memoryview, now_ms: int) -> Feed | None:
        """Gives a follower's fetch v11, if only offsets are new in it, to its feed, and returns
        the feed; None if the fetch has to go through `enter`."""
        fetch = steady_fetch(body)
        if fetch is None:
            return None
        feed = self._sessions.get(fetch.session_id)
        if (
            feed is None
            or isinstance(feed, FetchSession)
            or feed.epoch != fetch.session_epoch
            or feed.replica_id != fetch.replica_id
            or not feed.takes(fetch, now_ms)
        ):
            return None
        feed.epoch = _after(feed.epoch)
        return feed

    def enter(self, request: FetchRequest, now_ms: int) -> tuple[FetchSession | Feed | None, bool]:
        """Applies the request's changes.  Returns the session, or None without one, and whether
        the answer must name all partitions.

        Raises ApiError(FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH).
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return None, True
            return self._open(request, now_ms), True
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_asked(request, now_ms)
        session.epoch = _after(session.epoch)
        return session, False

    def _open(self, request: FetchRequest, now_ms: int) -> FetchSession | Feed | None:
        follows = request.replica_id != CONSUMER_REPLICA_ID
        if not self._make_room(follows, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == 0:
            session_id = self._new_id()
        session: FetchSession | Feed
        if follows:
            session = self._new_feed(session_id, request.replica_id)
        else:
            session = FetchSession(session_id, by_id=request.by_id)
        session.next_asked(request, now_ms)
        self._sessions[session_id] = session
        return session

    def _make_room(self, privileged: bool, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms < EVICT_AFTER_MS:
            clients = [s for s in self._sessions.values() if not s.privileged]
            if not privileged or not clients:
                return False
            oldest = min(clients, key=lambda s: s.last_used_ms)
        self._remove(oldest.id)
        self.evictions += 1
        return True


def _after(epoch: int) -> int:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1
