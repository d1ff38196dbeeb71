"""Fetch, API 1, v4-17: reads record batches for consumers and for followers.

A consumer gets records below the HW (read_uncommitted) or the LSO (read_committed); at or above
that limit the answer is empty and not an error.  A follower gets everything up to the LEO.  Its
fetch offset is recorded as its progress, once, and only for partitions that were read without an
error.  A follower answers no Fetch: NOT_LEADER_OR_FOLLOWER.

The answer waits in the purgatory until one of these holds: min_bytes are there (or as much as the
answer may hold, if that is less); a partition has an error; a partition was read from a segment
older than the one in which its limit lies; max_wait_ms have passed.  Records are never touched:
they go from the segment to the socket.  A fetch of thousands of partitions is read in turns, and
later only its partitions with news are read again.  If the start of a batch must be looked up on
the disk, the wait is outside of the loop.  A follower's session is a feed, which answers in place
of the purgatory (`replica/feed.py`); a follower without a session is served here.  v7 brought
sessions (KIP-227), v9 the fence by leader epoch (KIP-320), v11 the rack (read and ignored), v12
diverging epochs (KIP-595), v13 topic ids (KIP-516), v16 the name of a wrong one's leader (KIP-951).
A topic's id is looked up at each read, so that one that was made anew is another topic.

Source: kafka.server.DelayedFetch, ReplicaManager.fetchMessages.
Deviations: an offset above the HW (or LSO) waits like one at it; Kafka answers it at once with
nothing, and the client repeats the request endlessly.  An unknown partition ends the wait like any
error, and a first batch that arrives during it counts whole, even above the partition's max_bytes;
in Kafka the other partitions go on waiting, and the batch counts as max_bytes.  Followers name
topics by their names, as with inter.broker.protocol.version 2.6: no id that one names is known.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Container, Hashable, Iterable, Sequence
from functools import partial
from typing import ClassVar

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.context import Access, Api, Context, Delayed, Feeding, Reply
from highwater.broker.current_leaders import current_leader, endpoints
from highwater.broker.log.cold_reads import read_at_once, read_loaded
from highwater.broker.quota.quota_manager import user_of
from highwater.broker.replica.feed import AT_ONCE, Feed
from highwater.broker.replica.fetch_sessions import FetchSession
from highwater.broker.replica.reading import PartitionRead, counted_bytes, in_older_segment
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import FileSlice, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.fetch import (
    CONSUMER_REPLICA_ID,
    MAX_VERSION,
    MIN_VERSION,
    TELLS_LEADER,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    parse_fetch,
    response_parts,
)
from highwater.kafka.wire.node_endpoints import NodeEndpoint
from highwater.world.api import ColdRead

API = Api(
    key=1,
    name="Fetch",
    versions=(MIN_VERSION, MAX_VERSION),
    raw=True,
    access=Access(inside="Read of each topic; followers: ClusterAction"),
)

ISOLATION_LEVELS = (0, 1)
_OF_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(ctx: Context, body: memoryview) -> Reply | Awaitable[Reply]:
    try:
        request = parse_fetch(body, ctx.version)
    except (struct.error, IndexError, ValueError) as e:
        raise BadMessage(f"a Fetch request that does not parse: {e}") from e
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refused(ctx, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    follows = request.replica_id != CONSUMER_REPLICA_ID
    if follows and request.by_id:
        return _refused(ctx, request, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE)
    if follows and not ctx.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _refused(ctx, request, code, ErrorCode.NONE)
    try:
        session, full = ctx.services.replicas.sessions.enter(request, ctx.now_ms)
    except ApiError as e:
        parts = response_parts(ctx.version, int(e.code), 0, ())
        return Response(parts=parts, error_names=(e.code.name,))
    if isinstance(session, Feed):
        return _feed(ctx, request, session, full)
    asked = request.partitions if session is None else list(session.partitions.values())
    if request.by_id:
        asked = [_named(ctx, p) for p in asked]
    fetch = FetchOperation(ctx, request, session, asked, full)
    if len(asked) > AT_ONCE or not fetch.read_at_once(asked):
        return _in_turns(fetch)
    return Delayed(fetch)


def _feed(ctx: Context, request: FetchRequest, feed: Feed, full: bool) -> Reply | Awaitable[Reply]:
    feed.begin(ctx.version, request.max_wait_ms, request.min_bytes, request.max_bytes, full)
    return Feeding(feed) if feed.fetched_at_once(ctx.now_ms) else _feed_in_turns(feed)


async def _feed_in_turns(feed: Feed) -> Reply:
    if await feed.in_turns():
        return Feeding(feed)
    return Response(parts=feed.nothing())


def _refused(
    ctx: Context, request: FetchRequest, code: ErrorCode, of_request: ErrorCode | None = None
) -> Response:
    """The same error for each partition, and for the request, as Kafka gives it: for the request
    alone where topics are named by ids."""
    of_request = code if of_request is None else of_request
    each = () if request.by_id and of_request else request.partitions
    refused = [_failed(p, code) for p in each]
    parts = response_parts(ctx.version, int(of_request), 0, refused)
    return Response(parts=parts, error_names=(code.name,))


def _named(ctx: Context, p: FetchPartition) -> FetchPartition:
    """The partition with the name that its topic's id has now."""
    name = ctx.services.metadata.topic_of(p.topic_id) or ""
    return p if name == p.tp.topic else p._replace(tp=TopicPartition(name, p.tp.partition))


def _failed(p: FetchPartition, code: ErrorCode) -> FetchedPartition:
    return FetchedPartition(p.tp, int(code), -1, -1, -1, b"", 0, topic_id=p.topic_id)


def _with_leader(ctx: Context, result: FetchedPartition) -> FetchedPartition:
    """Names the leader where this broker is not it, or the client knows an old epoch of it."""
    if result.error not in _OF_LEADER:
        return result
    return result._replace(leader=current_leader(ctx, result.tp))


async def _in_turns(fetch: FetchOperation) -> Reply:
    """Reads in turns: a follower's many partitions, or a wait for the disk to find where batches
    begin, would delay all other clients."""
    for first in range(0, len(fetch.asked), AT_ONCE):
        some = fetch.asked[first : first + AT_ONCE]
        if not fetch.read_at_once(some):
            await fetch.read_from_disk(some)
        await trio.lowlevel.checkpoint()
    fetch.read_again(fetch.changed())
    return Delayed(fetch)


class FetchOperation(DelayedOperation):
    """One fetch, answered at once or when enough has arrived."""

    kind: ClassVar[str] = "Fetch"

    def __init__(
        self,
        ctx: Context,
        request: FetchRequest,
        session: FetchSession | None,
        asked: list[FetchPartition],
        full: bool,
    ) -> None:
        self.ctx = ctx
        self.request = request
        self.session = session
        self.asked = asked
        self.full = full
        self.keys = [p.tp for p in asked]
        self.timeout_ms = request.max_wait_ms
        self._reads: list[PartitionRead] = []
        """One for each partition in `asked`."""
        self._size = 0
        """Bytes to send, for all partitions."""
        self._counted = 0
        self._left = self._most()
        self._min_bytes = min(request.min_bytes, self._left)
        self._news: set[Hashable] = set()
        self._denied = frozenset[str]()
        """Topics that the client may not read."""
        if ctx.services.authorizer is not None and not self._follower:
            topics = dict.fromkeys(p.tp.topic for p in asked)
            self._denied = frozenset(
                t for t in topics if not ctx.allows(Operation.READ, ResourceType.TOPIC, t)
            )
        self._tried = False
        """Whether it waits: at the first try the handler's reads are still fresh."""

    @property
    def _follower(self) -> bool:
        return self.request.replica_id != CONSUMER_REPLICA_ID

    @property
    def complete(self) -> bool:
        """Whether it is answered without waiting."""
        return (
            self._counted >= self._min_bytes
            or self.request.max_wait_ms <= 0
            or any(r.at_once for r in self._reads)
            or not (self.asked or (self.session is not None and self.session.partitions))
        )

    def read(self, partitions: Sequence[FetchPartition]) -> None:
        """Reads the next partitions: whole batches within max_bytes, but the first batch of the
        answer whole whatever its size (KIP-74).  A follower's fetch offset is its progress."""
        reads = [self._read(p) for p in partitions]
        self._reads += reads
        if self._follower:
            self._record_progress(zip(partitions, (r.result for r in reads), strict=True))

    def read_at_once(self, partitions: Sequence[FetchPartition]) -> bool:
        """`read`; returns False and does nothing if it would have to wait for the disk."""
        before = self._size, self._left, self._counted
        try:
            read_at_once(self.ctx.services.world.disk, lambda: self.read(partitions))
        except ColdRead:
            self._size, self._left, self._counted = before
            return False
        return True

    async def read_from_disk(self, partitions: Sequence[FetchPartition]) -> None:
        """`read`, each partition once all it needs is in memory: two places, as a rule."""
        replicas = self.ctx.services.replicas
        for p in partitions:
            failed = partial(replicas.disk_failed, replicas.partitions.get(p.tp))
            await read_loaded(self.ctx.services.world.disk, partial(self.read, [p]), failed)

    def read_again(self, changed: Container[Hashable]) -> None:
        """Reads again what has changed and all that is not empty, as its bytes may be gone.  An
        empty result needs no second read: an error would have been news."""
        self._size, self._left, self._counted = 0, self._most(), 0
        for n, (p, r) in enumerate(zip(self.asked, self._reads, strict=True)):
            if r.counted or r.result.error or p.tp in changed:
                self._reads[n] = self._read(p, r.segment)

    def changed(self) -> set[TopicPartition]:
        """Partitions that changed since they were read: between two turns no news arrives."""
        replicas, request = self.ctx.services.replicas, self.request
        changed = set()
        for p, r in zip(self.asked, self._reads, strict=True):
            try:
                partition = replicas.partition(p.tp)
                end = replicas.end_for(partition, request.replica_id, request.isolation_level)
            except ApiError:
                changed.add(p.tp)
                continue
            if end > p.fetch_offset or partition.high_watermark != r.result.high_watermark:
                changed.add(p.tp)
        return changed

    def _most(self) -> int:
        """The most bytes that the answer may have."""
        services = self.ctx.services
        most = min(self.request.max_bytes, services.config.fetch_max_bytes)
        if services.quotas.active and not self._follower:
            user, client = user_of(self.ctx.principal), self.ctx.client_id or ""
            bound = services.quotas.fetch.most(user, client)
            most = most if bound is None else min(most, int(bound))
        return most

    def _read(self, p: FetchPartition, segment: int | None = None) -> PartitionRead:
        """`segment` is that of the first read, if this is a later one."""
        request, replicas = self.request, self.ctx.services.replicas
        most, min_one = self._left, not self._size
        held_back = self._follower and replicas.held_back(p.tp, request.replica_id)
        if held_back:
            most, min_one = 0, False
        try:
            if p.topic_id:
                self._look_up(p)
            if self._denied and p.tp.topic in self._denied:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if p.topic_id:
                self._compare_ids(p)
            r = replicas.read(p, most, request.replica_id, request.isolation_level, min_one)
        except ApiError as e:
            return PartitionRead(_failed(p, e.code), True)
        piece = r.slice
        size = piece.size if piece is not None else 0
        records = FileSlice(piece.file, piece.position, size) if piece is not None and size else b""
        self._size += size
        self._left = max(self._left - size, 0)
        result = FetchedPartition(
            p.tp,
            0,
            r.high_watermark,
            r.last_stable_offset,
            r.log_start_offset,
            records,
            size,
            r.aborted,
            r.diverging,
            p.topic_id,
        )
        if piece is None:
            return PartitionRead(result, True)
        first = piece.segment if segment is None else segment
        if held_back:
            return PartitionRead(result, False, 0, first)
        counted = counted_bytes(p, piece)
        self._counted += counted
        return PartitionRead(result, in_older_segment(piece, first), counted, first)

    def _look_up(self, p: FetchPartition) -> None:
        """Raises ApiError where the id has no name any more, or another one."""
        if not p.tp.topic or self.ctx.services.metadata.topic_of(p.topic_id) != p.tp.topic:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)

    def _compare_ids(self, p: FetchPartition) -> None:
        """Raises ApiError where the log belongs to another topic of the name."""
        hosted = self.ctx.services.replicas.logs.get(p.tp)
        if hosted is not None and hosted.topic_id not in (None, p.topic_id):
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)

    def _record_progress(self, reads: Iterable[tuple[FetchPartition, FetchedPartition]]) -> None:
        replicas = self.ctx.services.replicas
        for p, r in reads:
            if r.error == ErrorCode.NONE and r.diverging is None:
                replicas.follower_progress(p, self.request.replica_id)

    def answer(self) -> Response:
        results = [r.result for r in self._reads]
        if self.ctx.services.quotas.active and not self._follower:
            throttle_ms = self._throttle_ms(sum(r.size for r in results))
            if throttle_ms:
                return self._throttled(throttle_ms)
        self._count(results)
        session_id = 0
        if self.session is not None:
            session_id = self.session.id
            news = self.session.select(results)
            if not self.full:
                results = news
        names = tuple(ErrorCode(r.error).name for r in results if r.error)
        known: list[NodeEndpoint] = []
        if names and self.ctx.version >= TELLS_LEADER:
            results = [_with_leader(self.ctx, r) for r in results]
            known = endpoints(self.ctx, (r.leader for r in results))
        parts = response_parts(self.ctx.version, 0, session_id, results, endpoints=known)
        return Response(parts=parts, error_names=names)

    def _throttle_ms(self, size: int) -> int:
        """How long this client must wait for its consumer_byte_rate; then the answer is empty, and
        its records do not count.
        """
        ctx, now_ms = self.ctx, monotonic_ms()
        fetch, user, client = ctx.services.quotas.fetch, user_of(ctx.principal), ctx.client_id or ""
        throttle_ms = fetch.record(user, client, size, now_ms)
        if throttle_ms:
            fetch.take_back(user, client, size, now_ms)
            fetch.throttled(user, client, throttle_ms, now_ms)
        return throttle_ms

    def _throttled(self, throttle_ms: int) -> Response:
        session_id = 0
        if self.session is not None:
            if self.full:  # the client has not seen it, and opens another one
                self.ctx.services.replicas.sessions.close(self.session)
            else:
                session_id = self.session.id
        parts = response_parts(self.ctx.version, 0, session_id, (), throttle_ms)
        return Response(parts=parts, throttle_ms=throttle_ms)

    def _count(self, results: list[FetchedPartition]) -> None:
        replicas = self.ctx.services.replicas
        stats, hosted = replicas.topic_stats, replicas.partitions
        to_follower = self._follower
        for r in results:
            partition = hosted.get(r.tp)
            if partition is None:
                continue
            adding = to_follower and self.request.replica_id in partition.adding
            stats.fetched(r.tp.topic, r.error, r.size, to_follower, adding)
            if to_follower and (quota := replicas.throttles.leader).is_throttled(r.tp):
                quota.record(r.size, monotonic_ms())

    def heard(self, key: Hashable) -> None:
        self._news.add(key)

    def try_complete(self) -> Response | None:
        if self._tried or self._news:
            news, self._news = self._news, set()
            self.read_again(news)
        self._tried = True
        return self.answer() if self.complete else None

    def on_expire(self) -> Response:
        self.ctx.services.replicas.topic_stats.expired(self._follower)
        self.read_again(self._news)
        return self.answer()
