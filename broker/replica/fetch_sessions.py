"""The leader's side of incremental fetch sessions (KIP-227).  Pure; the caller passes in the time
and random numbers.

A session remembers what its client asked for and what it was last told, so that requests carry only
changes and answers only partitions with news.  The cache is bounded
(max.incremental.fetch.session.cache.slots).  A new session replaces the one that was unused longest
if that has been idle for two minutes, or a client's session if a follower asks; otherwise the fetch
is served without a session (id 0).

Of a follower's session only the partitions that are awake are read: the others rest (`rests`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchedPartition, FetchPartition, FetchRequest

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICT_AFTER_MS = 120_000


class Resting(Protocol):
    """A partition at rest, as its session and its follower hold it (`rests.Rest`)."""

    asked: FetchPartition

    def holds(self) -> bool: ...

    def begin(self) -> None: ...

    def end(self) -> None: ...


@dataclass(slots=True, eq=False)
class FetchSession:
    """Also the key under which a follower's fetch waits for partitions that wake."""

    id: int
    replica_id: int
    news: Callable[[FetchSession], None]
    """Called when a partition wakes; must return at once."""
    epoch: int = 1
    last_used_ms: int = 0
    partitions: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    told: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)
    """(HW, LSO, log start offset) as last answered."""
    awake: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    """Of a follower's session the partitions to read, in the order of turns."""
    rests: dict[TopicPartition, Resting] = field(default_factory=dict)
    """Of a follower's session all others."""
    woken: list[TopicPartition] = field(default_factory=list)
    """Awake since the latest fetch came: it has not read them, unless it has taken them up."""
    seen_ms: int = 0
    """When the latest fetch came: the follower was there, for all partitions at rest."""

    @property
    def privileged(self) -> bool:
        """Whether it is a follower's."""
        return self.replica_id >= 0

    def rest(self, rest: Resting) -> None:
        """From now on fetches pass this partition over."""
        tp = rest.asked.tp
        if self.awake.get(tp) is rest.asked:
            del self.awake[tp]
            self.rests[tp] = rest
            rest.begin()

    def woke(self, tp: TopicPartition) -> None:
        """A rest has ended; only `Rest.end` calls it."""
        del self.rests[tp]
        self.awake[tp] = self.partitions[tp]
        self.woken.append(tp)
        self.news(self)

    def wake_all(self) -> None:
        for rest in list(self.rests.values()):
            rest.end()

    def next_asked(self, request: FetchRequest, now_ms: int) -> list[FetchPartition]:
        """Takes the changes of a request; returns the partitions to read for it."""
        if request.replica_id != self.replica_id:
            self.wake_all()
        for tp in (*request.forgotten, *(p.tp for p in request.partitions)):
            if tp in self.rests:
                self.rests[tp].end()
        for tp in request.forgotten:
            self.partitions.pop(tp, None)
            self.told.pop(tp, None)
            self.awake.pop(tp, None)
        for p in request.partitions:
            self.partitions[p.tp] = p
            if self.privileged:
                self.awake[p.tp] = p
        self.seen_ms = now_ms
        self.woken.clear()
        return list((self.awake if self.privileged else self.partitions).values())

    def select(self, results: Iterable[FetchedPartition]) -> list[FetchedPartition]:
        """Results with records, an error, or offsets that the client has not been told.

        Partitions with records move to the end of the order, so that none starves the others
        (KIP-74).
        """
        out = []
        for r in results:
            now = (r.high_watermark, r.last_stable_offset, r.log_start_offset)
            news = r.size or r.error or r.diverging is not None
            if news or self.told.get(r.tp) != now:
                out.append(r)
                self.told[r.tp] = now
                if r.size and r.tp in self.partitions:
                    self.partitions[r.tp] = self.partitions.pop(r.tp)
                    if r.tp in self.awake:
                        self.awake[r.tp] = self.awake.pop(r.tp)
        return out


class FetchSessions:
    """The cache.  `new_id` returns a random positive int32; `news` is `FetchSession.news`."""

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        news: Callable[[FetchSession], None] = lambda session: None,
    ) -> None:
        self._slots = slots
        self._new_id = new_id
        self._news = news
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def close(self, session: FetchSession) -> None:
        """Closes a session of which its client will not be told."""
        self._remove(session.id)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.wake_all()

    def enter(
        self, request: FetchRequest, now_ms: int
    ) -> tuple[FetchSession | None, list[FetchPartition], bool]:
        """The session (or None), the partitions to read, and whether the answer names all of them.

        Raises ApiError(FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH).
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return None, request.partitions, True
            return self._open(request, now_ms), request.partitions, True
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        asked = session.next_asked(request, now_ms)
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        session.last_used_ms = now_ms
        return session, asked, False

    def _open(self, request: FetchRequest, now_ms: int) -> FetchSession | None:
        if not self._make_room(request.replica_id >= 0, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == 0:
            session_id = self._new_id()
        session = FetchSession(session_id, request.replica_id, self._news, last_used_ms=now_ms)
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
