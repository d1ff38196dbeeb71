"""A feed: the leader's side of one follower, which is not served like a client.

A feed is the incremental session (KIP-227) of one fetcher of one follower, and the fetch that waits
in it.  A fetch costs as much as has changed, however many partitions the session has: the feed
keeps the set of partitions with *news*, and reads no others.  `Partition.stir` puts a partition
into that set before anything changes that its read depends on: the log's end, start or object, the
HW, the ISR, the role or the epoch.  A partition leaves the set, and *rests*, once the follower is
in the ISR, has all that the leader has, and has been answered so.  While a partition rests, the
session's latest fetch counts as a fetch of it.  (Kafka reads all partitions for each fetch.)

    state    event                           action                                    next state
    idle     a fetch                         its offsets are progress; reads the news  idle, waiting
    idle     a fetch: many, or cold data     the same in turns, or after the disk      busy
    busy     the last turn                   as a fetch                                idle, waiting
    waiting  records, or an error            answers                                   idle
    waiting  max_wait_ms are over            answers with the offsets that are news    idle
    waiting  another fetch, or the end of    answers with nothing                      idle
             the session

A move of the HW ends no wait: the follower learns of it with the next records, or when the wait is
over.

`in_step` is the steady state of a partition: both sides know the same leader epoch, and the offset
is inside the log.  Outside of that state a partition is read as for any reader
(`ReplicaManager.read`), and the others do not wait for it.  A partition never rests while its
follower is outside the ISR: each fetch may let the follower join.

Source: kafka.server.FetchSession, DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.log.cold_reads import read_at_once, read_loaded
from highwater.broker.replica.partition import Partition, Role
from highwater.broker.replica.reading import counted_bytes, in_older_segment
from highwater.broker.request.response import FileSlice, Part
from highwater.broker.request.timing_wheel import TimerTask
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import (
    STEADY_VERSION,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    SteadyFetch,
    response_parts,
)
from highwater.world.api import Buffer, ColdRead

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.replica.follower import Follower
    from highwater.broker.replica.replica_manager import ReplicaManager
    from highwater.broker.request.purgatory import CompletionSink

AT_ONCE = 120
"""The number of partitions read before other tasks have their turn: some 3 ms."""
_FRESH_BYTES = 1 << 16
"""Larger batches are sent from the file, without a copy."""
_ENOUGH = 1 << 62
"""Counted for a partition that alone is reason enough to answer."""


class Desk(Protocol):
    """The part of the broker that answers followers' requests."""

    def fed(self, request: Any, parts: Sequence[Part], errors: tuple[str, ...]) -> None:
        """Sends the body of the answer to a fetch."""

    def feed_failed(self, request: Any, error: Exception) -> None:
        """Reports that a fetch that waited gets no answer."""


class Fed:
    """One partition of a feed."""

    __slots__ = ("asked", "feed", "follower", "fresh", "partition", "rests", "told")

    def __init__(self, feed: Feed, asked: FetchPartition) -> None:
        self.feed = feed
        self.asked = asked
        self.partition: Partition | None = None
        self.follower: Follower | None = None
        """The leader's view of the follower.  It refers back to this object, unless a later fetch
        of the same follower came in another session."""
        self.told: tuple[int, int, int] | None = None
        """The HW, LSO and log start offset last answered."""
        self.rests = False
        self.fresh: Buffer | None = None
        """The batches from the fetch offset to the log's end, as they were just written; kept
        only until the waiting fetch takes them."""

    def attach(self, partition: Partition, follower: Follower) -> None:
        """Makes the partition's `stir` reach this object from now on."""
        other = follower.fed
        if other is not None and other.rests:
            other.feed.stir(other)
        self.partition, self.follower, follower.fed = partition, follower, self

    def detach(self) -> None:
        self.feed.stir(self)
        if self.follower is not None and self.follower.fed is self:
            self.follower.fed = None


class Feed(TimerTask):
    """See the module's docstring.  A feed is also the timer task of its own time-out, and stays
    on the wheel from one wait to the next."""

    __slots__ = (
        "_busy", "_deadline_ms", "_desk", "_full", "_max_wait_ms", "_min_bytes", "_most",
        "_queued", "_ready", "_replicas", "_request", "_results", "_serial", "_sink",
        "_stirred", "_version", "epoch", "id", "last_used_ms", "news", "partitions", "replica_id",
        "topics",
    )  # fmt: skip

    privileged = True

    def __init__(self, session_id: int, replica_id: int, replicas: ReplicaManager) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.epoch = 1
        self.last_used_ms = 0
        """When the latest fetch came; it counts as a fetch of all partitions at rest."""
        self.partitions: dict[TopicPartition, Fed] = {}
        self.topics: dict[bytes, dict[int, Fed]] = {}
        """The same partitions, by topic and index, as a request names them."""
        self.news: dict[Fed, None] = {}
        """The partitions that do not rest, in the order in which they are read."""
        self._replicas = replicas
        self._request: Any = None
        """The fetch that waits."""
        self._desk: Desk | None = None
        self._sink: CompletionSink | None = None
        self._version = 0
        self._full = False
        """Whether the answer names every partition."""
        self._max_wait_ms = self._min_bytes = self._most = 0
        self._ready: dict[Fed, int] = {}
        """The partitions with something to send: bytes of each that count towards min_bytes."""
        self._results: dict[Fed, FetchedPartition] = {}
        """The reads of the current fetch that no change has made stale."""
        self._stirred: dict[Fed, None] = {}
        """The partitions that have changed, during a fetch, since they were last looked at."""
        self._busy = self._queued = False
        self._bucket = None  # not on the wheel yet
        self._serial = 0
        """The number of fetches; when it moves, the turns of an earlier fetch end."""
        self._deadline_ms = 0

    # ---------------------------------------------------------------- news

    def stir(self, fed: Fed, *, ends_wait: bool = True) -> None:
        """Notes that a partition is about to change; `ends_wait` is False if only the HW moves."""
        fed.fresh = None
        if fed.rests:
            self._wake(fed)
        if self._busy:
            self._results.pop(fed, None)
            if ends_wait:
                self._stirred[fed] = None
                if self._request is not None and not self._queued:
                    self._queued = True
                    assert self._sink is not None
                    self._sink.look(self)

    def _wake(self, fed: Fed) -> None:
        """Ends a rest, and records its fetches as `Partition.follower_fetched` would have."""
        fed.rests, self.news[fed] = False, None
        follower, asked, seen_ms = fed.follower, fed.asked, self.last_used_ms
        assert follower is not None
        if seen_ms > follower.last_fetch_ms:
            end = asked.fetch_offset
            follower.fetched(end, asked.log_start_offset, end, seen_ms)

    def in_step(self, fed: Fed) -> Log | None:
        """The leader's log if the partition is in its steady state, else None."""
        partition, asked = fed.partition, fed.asked
        if (
            partition is None
            or partition.role is not Role.LEADER
            or partition.leader_epoch != asked.current_leader_epoch
            or asked.last_fetched_epoch >= 0
            or partition.followers.get(self.replica_id) is not fed.follower
        ):
            return None
        log = partition.log
        if log is None or not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
            return None
        return log

    # ---------------------------------------------------------------- a fetch

    def next_asked(self, request: FetchRequest, now_ms: int) -> None:
        """Takes the changes of a request.  Raises ApiError(FETCH_SESSION_ID_NOT_FOUND) if another
        replica sent it."""
        if request.replica_id != self.replica_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self.give_up()
        for tp in request.forgotten:
            assert isinstance(tp, TopicPartition), "a follower names topics by their names"
            if (gone := self.partitions.pop(tp, None)) is not None:
                gone.detach()
                self.news.pop(gone, None)
                of_topic = self.topics[name := tp.topic.encode()]
                del of_topic[tp.partition]
                if not of_topic:
                    del self.topics[name]
        for p in request.partitions:
            fed = self.partitions.get(p.tp)
            if fed is None:
                fed = self.partitions[p.tp] = Fed(self, p)
                self.topics.setdefault(p.tp.topic.encode(), {})[p.tp.partition] = fed
            self._ask(fed, p)
        self.last_used_ms = now_ms

    def _ask(self, fed: Fed, asked: FetchPartition) -> None:
        if fed.rests:
            self._wake(fed)
        fed.asked, fed.fresh = asked, None
        self.news[fed] = None

    def takes(self, fetch: SteadyFetch, now_ms: int) -> bool:
        """Takes a fetch in which only the offsets of partitions in their steady state are new, and
        records them as progress; the caller then calls `serve`.  False for any other fetch."""
        named: list[tuple[Fed, FetchPartition]] = []
        for topic, partitions in fetch.topics:
            known = self.topics.get(topic)
            if known is None:
                return False
            for index, epoch, offset, log_start, max_bytes in partitions:
                fed = known.get(index)
                if fed is None or fed.asked.current_leader_epoch != epoch or epoch < 0:
                    return False
                tp = fed.asked.tp
                named.append((fed, FetchPartition(tp, epoch, offset, -1, log_start, max_bytes)))
        if len(self.news) + len(named) > AT_ONCE:
            return False
        if self._request is not None:
            self.give_up()
        for fed, asked in named:
            self._ask(fed, asked)
        self.last_used_ms = now_ms
        self.begin(STEADY_VERSION, fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes)
        for fed in list(self.news):
            self._fetched(fed, now_ms)
        return True

    def begin(
        self, version: int, max_wait_ms: int, min_bytes: int, max_bytes: int, full: bool = False
    ) -> None:
        """Begins a fetch; then come `fetched_at_once` or `in_turns`, and `serve`."""
        self._version, self._full = version, full
        self._max_wait_ms = max_wait_ms
        self._most = min(max_bytes, self._replicas.config.fetch_max_bytes)
        self._min_bytes = min(min_bytes, self._most)
        self._ready.clear()
        self._results.clear()
        self._stirred.clear()
        self._busy = True
        self._serial += 1

    def fetched_at_once(self, now_ms: int) -> bool:
        """Fetches its partitions with news; False if they are too many, or need the disk."""
        if len(self.news) > AT_ONCE:
            return False
        try:
            for fed in list(self.news):
                read_at_once(self._replicas.world.disk, partial(self._fetched, fed, now_ms))
        except ColdRead:
            return False
        return True

    async def in_turns(self) -> bool:
        """Fetches and reads all partitions with news, in turns, and from the disk if need be.
        False if another fetch has come meanwhile: this one must be answered with `nothing`."""
        serial, disk = self._serial, self._replicas.world.disk
        for n, fed in enumerate(list(self.news), 1):
            if n % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            fetched = partial(self._fetched, fed, monotonic_ms())
            if serial == self._serial and fed in self.news:
                await read_loaded(disk, fetched, self._failed(fed))
        return await self._load(serial)

    async def _load(self, serial: int) -> bool:
        """Reads the ready partitions, in turns and from the disk; returns what `in_turns` does."""
        left, some, disk = self._most, False, self._replicas.world.disk
        for n, fed in enumerate(list(self._ready), 1):
            if n % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if serial != self._serial:
                return False
            read = partial(self._result, fed, left, not some)
            result = await read_loaded(disk, read, self._failed(fed))
            if serial == self._serial and fed not in self._stirred:
                self._results[fed] = result
            left, some = max(left - result.size, 0), some or result.size > 0
        return serial == self._serial

    def _failed(self, fed: Fed) -> Callable[[OSError], None]:
        partition = self._replicas.partitions.get(fed.asked.tp)
        return partial(self._replicas.disk_failed, partition)

    def nothing(self) -> list[Part]:
        """The body of an answer without any partition."""
        return response_parts(self._version, 0, self.id, ())

    def _fetched(self, fed: Fed, now_ms: int) -> None:
        """Takes one partition of a fetch: its offset is progress unless the read has an error."""
        replicas, tp = self._replicas, fed.asked.tp
        log = self.in_step(fed)
        if log is None or fed.follower is None or fed.follower.fed is not fed:
            partition = replicas.partitions.get(tp)
            follower = None if partition is None else partition.followers.get(self.replica_id)
            if partition is not None and follower is not None:
                fed.attach(partition, follower)
                log = self.in_step(fed)
        if log is not None:
            assert fed.partition is not None
            replicas.progress(fed.partition, self.replica_id, fed.asked, now_ms)
        else:
            result = self._result(fed, 0, False)
            if not result.error and result.diverging is None:
                replicas.follower_progress(fed.asked, self.replica_id)
        self._note(fed, log)

    def _note(self, fed: Fed, log: Log | None) -> None:
        """Notes whether there is something to send of this partition; `log` is `in_step`'s."""
        if log is None or log.log_end_offset != fed.asked.fetch_offset:
            counted = self._counted(fed, log)
            if counted:
                self._ready[fed] = counted
                return
        self._ready.pop(fed, None)

    def _counted(self, fed: Fed, log: Log | None) -> int:
        """The bytes that count towards min_bytes; 0 while a throttle holds them back."""
        asked, replicas = fed.asked, self._replicas
        if replicas.throttles.leader.in_use and replicas.held_back(asked.tp, self.replica_id):
            return 0
        if log is not None and self._min_bytes <= 1:
            return 1
        try:
            read = replicas.read(asked, self._most, self.replica_id, 0, True)
        except ApiError:
            return _ENOUGH
        if read.slice is None or in_older_segment(read.slice, read.slice.segment):
            return _ENOUGH
        return counted_bytes(asked, read.slice)

    # ---------------------------------------------------------------- its answer

    def serve(self, request: Any, desk: Desk, sink: CompletionSink) -> Awaitable[None] | None:
        """Answers now, or when there is news.  Where the disk is needed, await what it returns."""
        self._desk, self._sink = desk, sink
        if self._stirred:
            self._look()
        if not self._complete:
            self._wait(request)
            return None
        if not self._ready:
            self._answer(request)
            return None
        try:
            read_at_once(self._replicas.world.disk, self._read)
        except ColdRead:
            return self._from_disk(request)
        self._answer(request)
        return None

    @property
    def _complete(self) -> bool:
        ready, least = self._ready, self._min_bytes
        return (
            (bool(ready) if least == 1 else sum(ready.values()) >= least)
            or self._max_wait_ms <= 0
            or not self.partitions
        )

    def _read(self) -> None:
        """Reads the ready partitions that have not been read yet."""
        left, some, results = self._most, False, self._results
        for fed in self._ready:
            if fed not in results:
                results[fed] = self._result(fed, left, not some)
            size = results[fed].size
            left, some = max(left - size, 0), some or size > 0

    async def _from_disk(self, request: Any) -> None:
        if await self._load(self._serial):
            self._answer(request)
        else:
            assert self._desk is not None
            self._desk.fed(request, self.nothing(), ())

    def _result(self, fed: Fed, most: int, min_one: bool) -> FetchedPartition:
        """One partition's part of the answer: whole batches within `most` bytes, but the first
        batch of an answer whatever its size (KIP-74)."""
        asked, replicas = fed.asked, self._replicas
        log = self.in_step(fed)
        if log is not None and log.log_end_offset == asked.fetch_offset:
            partition = fed.partition
            assert partition is not None
            return FetchedPartition(
                asked.tp, 0, partition.high_watermark, partition.last_stable_offset,
                log.log_start_offset, b"", 0,
            )  # fmt: skip
        if replicas.throttles.leader.in_use and replicas.held_back(asked.tp, self.replica_id):
            most, min_one = 0, False
        elif log is not None and fed.fresh is not None:
            fresh, fed.fresh = fed.fresh, None
            size = len(fresh)
            if size <= min(most, asked.max_bytes, _FRESH_BYTES):
                assert fed.partition is not None
                return FetchedPartition(
                    asked.tp, 0, fed.partition.high_watermark, fed.partition.last_stable_offset,
                    log.log_start_offset, fresh, size,
                )  # fmt: skip
        try:
            r = replicas.read(asked, most, self.replica_id, 0, min_one)
        except ApiError as e:
            return FetchedPartition(asked.tp, int(e.code), -1, -1, -1, b"", 0)
        piece = r.slice
        size = piece.size if piece is not None else 0
        records = FileSlice(piece.file, piece.position, size) if piece is not None and size else b""
        return FetchedPartition(
            asked.tp, 0, r.high_watermark, r.last_stable_offset, r.log_start_offset, records, size,
            None, r.diverging,
        )  # fmt: skip

    def _answer(self, request: Any) -> None:
        """Sends records, errors, and offsets that the follower does not know yet."""
        if self._request is not None:
            self._stop_waiting()
        self._busy = False
        results, self._results = self._results, {}
        left = self._most
        for r in results.values():
            left -= r.size
        some = left < self._most
        told: list[FetchedPartition] = []
        errors: tuple[str, ...] = ()
        for fed in list(self.news):
            if fed in results:
                r = results[fed]
            else:
                r = self._result(fed, max(left, 0), not some)
                left, some = left - r.size, some or r.size > 0
            now = (r.high_watermark, r.last_stable_offset, r.log_start_offset)
            if r.size or r.error or r.diverging is not None or self._full or fed.told != now:
                told.append(r)
                fed.told = now
                if r.error:
                    errors += (ErrorCode(r.error).name,)
            self._count(fed, r)
            if r.size:
                # behind the others, so that none starves (KIP-74)
                del self.news[fed]
                self.news[fed] = None
            elif not r.error and self._may_rest(fed):
                fed.rests = True
                del self.news[fed]
        self._ready.clear()
        self._stirred.clear()
        parts = response_parts(self._version, 0, self.id, told)
        assert self._desk is not None
        self._desk.fed(request, parts, errors)

    def _may_rest(self, fed: Fed) -> bool:
        """Whether another read would give the same result, and change only the follower's times."""
        log, asked, follower = self.in_step(fed), fed.asked, fed.follower
        if log is None or follower is None or follower.fed is not fed:
            return False
        partition = fed.partition
        assert partition is not None
        return (
            log.log_end_offset == asked.fetch_offset == follower.log_end_offset
            and follower.log_start_offset == asked.log_start_offset
            and self.replica_id in partition.isr.members
        )

    def _count(self, fed: Fed, r: FetchedPartition) -> None:
        replicas, tp = self._replicas, r.tp
        partition = replicas.partitions.get(tp)
        if partition is not None:
            adding = self.replica_id in partition.adding
            replicas.topic_stats.fetched(tp.topic, r.error, r.size, True, adding)
            quota = replicas.throttles.leader
            if quota.in_use and quota.is_throttled(tp):
                quota.record(r.size, monotonic_ms())

    # ---------------------------------------------------------------- its wait

    @property
    def waits(self) -> bool:
        return self._request is not None

    def _wait(self, request: Any) -> None:
        sink = self._sink
        assert sink is not None
        self._request = request
        sink.purgatories.fetches.pending += 1
        self._deadline_ms = self.last_used_ms + self._max_wait_ms
        if self.timed and self.due_ms > self._deadline_ms:
            self.cancel()
        if not self.timed:
            sink.purgatories.add_timer(self, self._deadline_ms)

    def _stop_waiting(self) -> None:
        self._request = None
        assert self._sink is not None
        self._sink.purgatories.fetches.pending -= 1

    def look(self) -> None:
        """Handles news; the completion sink calls it after `stir`."""
        self._queued = False
        request = self._request
        if request is None:
            return
        try:
            self._look()
            if self._complete:
                self._answer(request)
        except Exception as e:
            self._fail(request, e)

    def _look(self) -> None:
        stirred, self._stirred = self._stirred, {}
        for fed in stirred:
            if fed in self.news:
                self._note(fed, self.in_step(fed))

    def run(self) -> None:
        """Called by the wheel at the deadline of this wait, or of an earlier one."""
        if self._request is None:
            return
        sink = self._sink
        assert sink is not None
        if monotonic_ms() < self._deadline_ms:
            sink.purgatories.add_timer(self, self._deadline_ms)
            return
        self._replicas.topic_stats.expired(True)
        sink.purgatories.fetches.expired += 1
        request = self._request
        try:
            self._look()
            self._answer(request)
        except Exception as e:
            self._fail(request, e)

    def _fail(self, request: Any, error: Exception) -> None:
        if self._request is not None:
            self._stop_waiting()
        self._busy = False
        assert self._desk is not None
        self._desk.feed_failed(request, error)

    def give_up(self) -> None:
        """Ends the current fetch: another one came, or the session ends; nobody waits for it."""
        self._serial += 1
        self._busy = False
        if (request := self._request) is not None:
            self._stop_waiting()
            assert self._desk is not None
            self._desk.fed(request, self.nothing(), ())

    def close(self) -> None:
        """Ends the session."""
        for fed in self.partitions.values():
            fed.detach()
        self.give_up()
