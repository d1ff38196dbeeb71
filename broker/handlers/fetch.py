"""Fetch, API 1, v4-12: reads record batches for consumers and for followers.

A consumer is given what lies below the HW (read_uncommitted) or the LSO (read_committed); at or
above it the answer is empty and not an error.  A follower is given everything up to the LEO, and
what it asks for is recorded as its progress, once, and only for partitions that were read without
an error.  Followers serve nobody: NOT_LEADER_OR_FOLLOWER.

The answer waits in the purgatory until min_bytes are there, any partition has an error, or
max_wait_ms have passed. Records are never touched: they go from the segment to the socket.  v7
brought sessions (KIP-227), v9 the fence by leader epoch (KIP-320), v11 the rack (read and ignored),
v12 diverging epochs (KIP-595).
"""

from __future__ import annotations

import struct
from typing import ClassVar

from broker.context import Api, Context, Delayed, FileSlice, Reply, Response
from broker.purgatory import DelayedOperation, trio_now_ms
from broker.quota.manager import user_of
from broker.replica.fetch_sessions import FetchSession
from highwater.common.errors import ApiError, ErrorCode
from highwater.common.wire.codec import BadMessage
from highwater.common.wire.fetch import (
    CONSUMER_REPLICA_ID,
    MIN_VERSION,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    parse_fetch,
    response_parts,
)

API = Api(key=1, name="Fetch", versions=(MIN_VERSION, 12), raw=True)


def handle(ctx: Context, body: memoryview) -> Reply:
    try:
        request = parse_fetch(body, ctx.version)
    except (struct.error, IndexError, ValueError) as e:
        raise BadMessage(f"a Fetch request that does not parse: {e}") from e
    try:
        session, asked, full = ctx.services.replicas.sessions.enter(request, ctx.now_ms)
    except ApiError as e:
        parts = response_parts(ctx.version, int(e.code), 0, ())
        return Response(parts=parts, error_names=(e.code.name,))
    fetch = FetchOperation(ctx, request, session, asked, full)
    results, size = fetch.read()
    if request.replica_id != CONSUMER_REPLICA_ID:
        fetch.record_progress(results)
    urgent = any(r.error or r.diverging is not None for r in results)
    if size >= request.min_bytes or request.max_wait_ms <= 0 or not asked or urgent:
        return fetch.answer(results)
    return Delayed(fetch)


class FetchOperation(DelayedOperation):
    """One fetch, answered at once or when enough has come."""

    kind: ClassVar[str] = "Fetch"
    tried: ClassVar[bool] = True

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

    @property
    def _follower(self) -> bool:
        return self.request.replica_id != CONSUMER_REPLICA_ID

    def read(self) -> tuple[list[FetchedPartition], int]:
        """All partitions as they stand, and the bytes found: whole batches within max_bytes, but
        the first batch of the answer whole whatever its size (KIP-74)."""
        request, replicas = self.request, self.ctx.services.replicas
        left = min(request.max_bytes, self.ctx.services.config.fetch_max_bytes)
        if (quotas := self.ctx.services.quotas).active and not self._follower:
            bound = quotas.fetch.most(user_of(self.ctx.principal), self.ctx.client_id or "")
            left = left if bound is None else min(left, int(bound))
        out: list[FetchedPartition] = []
        total = 0
        for p in self.asked:
            most, min_one = left, not total
            if self._follower and replicas.held_back(p.tp, request.replica_id):
                most, min_one = 0, False
            try:
                r = replicas.read(p, most, request.replica_id, request.isolation_level, min_one)
            except ApiError as e:
                out.append(FetchedPartition(p.tp, int(e.code), -1, -1, -1, b"", 0))
                continue
            piece = r.slice
            size = piece.size if piece is not None else 0
            records = FileSlice(piece.file, piece.position, size) if piece is not None else b""
            total += size
            left = max(left - size, 0)
            out.append(
                FetchedPartition(
                    p.tp,
                    0,
                    r.high_watermark,
                    r.last_stable_offset,
                    r.log_start_offset,
                    records,
                    size,
                    r.aborted,
                    r.diverging,
                )
            )
        return out, total

    def record_progress(self, results: list[FetchedPartition]) -> None:
        replicas = self.ctx.services.replicas
        for p, r in zip(self.asked, results, strict=True):
            if r.error == ErrorCode.NONE and r.diverging is None:
                replicas.follower_progress(p, self.request.replica_id)

    def answer(self, results: list[FetchedPartition]) -> Response:
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
        parts = response_parts(self.ctx.version, 0, session_id, results)
        return Response(parts=parts, error_names=names)

    def _throttle_ms(self, size: int) -> int:
        """How long this client is to wait for its consumer_byte_rate; then the answer is empty, and
        its records do not count.
        """
        ctx, now_ms = self.ctx, trio_now_ms()
        fetch, user, client = ctx.services.quotas.fetch, user_of(ctx.principal), ctx.client_id or ""
        throttle_ms = fetch.record(user, client, size, now_ms)
        if throttle_ms:
            fetch.take_back(user, client, size, now_ms)
            fetch.throttled(user, client, throttle_ms, now_ms)
        return throttle_ms

    def _throttled(self, throttle_ms: int) -> Response:
        session_id = 0
        if self.session is not None:
            if self.full:  # the client has not seen it, and asks for another one
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
            stats.fetched(r.tp.topic, r.error, r.size, to_follower)
            if to_follower and self.request.replica_id in partition.adding:
                stats.reassignment_bytes_out += r.size
            if to_follower and (quota := replicas.throttles.leader).is_throttled(r.tp):
                quota.record(r.size, trio_now_ms())

    def try_complete(self) -> Response | None:
        results, size = self.read()
        if size >= self.request.min_bytes or any(r.error for r in results):
            return self.answer(results)
        return None

    def on_expire(self) -> Response:
        stats = self.ctx.services.replicas.topic_stats
        if self._follower:
            stats.expired_followers += 1
        else:
            stats.expired_consumers += 1
        return self.answer(self.read()[0])
