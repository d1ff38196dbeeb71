"""A consumer of assigned partitions: positions, fetches, and the HW and LSO of each answer.

It has no group and no task of its own: `poll` sends one Fetch to every leader that has none in
flight, and gives the answers that have come.  A fetch that is still waiting at the broker when
`poll` returns is kept for the next call.  A partition is read up to the HW, or under read_committed
up to the LSO; the brokers enforce both.

Each leader is asked in a fetch session (KIP-227): after the first request, partitions are named
only where something changed, and so they are in answers.  A session begins again, with a request
that names them all, after any failure and wherever its broker has dropped it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import trio

from highwater.kafka.client.connection import ClientConnection, Pending
from highwater.kafka.client.fetched import ConsumedRecord, CorruptBatch, PartitionFetch, visible
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.retries import RETRIABLE, STALE_METADATA, code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage, decode_response
from highwater.kafka.wire.fetch import FetchPartition, build_fetch
from highwater.kafka.wire.fetch_session_handler import SESSION_ERRORS, FetchSessionHandler
from highwater.kafka.wire.messages import ListOffsetsRequest

__all__ = ["EARLIEST", "LATEST", "ConsumedRecord", "Consumer", "PartitionFetch"]

FETCH = 1
FETCH_VERSION = 11
LIST_OFFSETS_VERSION = 5
EARLIEST = -2
LATEST = -1


class _Fetch:
    """A Fetch in flight."""

    def __init__(
        self,
        node: int,
        connection: ClientConnection,
        pending: Pending,
        asked: dict[TopicPartition, tuple[int, int]],
        deadline: float,
    ) -> None:
        self.node = node
        self.connection = connection
        self.pending = pending
        self.asked = asked
        """The position and leader epoch that were sent for each partition."""
        self.deadline = deadline
        self.answer: memoryview | None = None
        self.error: OSError | None = None


class Consumer:
    """One consumer of assigned partitions."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        read_committed: bool = False,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        max_partition_bytes: int = 1 << 20,
        reset: int | None = EARLIEST,
        verify: bool = True,
    ) -> None:
        """`reset` is EARLIEST, LATEST, or None: an offset that does not exist raises ApiError."""
        self._cluster = cluster
        self.read_committed = read_committed
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_partition_bytes = max_partition_bytes
        self.reset = reset
        self.verify = verify
        self._positions: dict[TopicPartition, int | None] = {}
        self._fetches: dict[int, _Fetch] = {}
        self._sessions: dict[int, FetchSessionHandler] = {}
        """Broker -> its fetch session."""
        self._later: dict[TopicPartition, float] = {}

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Replaces the assignment; None means "where `reset` says"."""
        self._positions = dict(positions)
        self._later.clear()
        for fetch in self._fetches.values():
            self._sessions[fetch.node].reset()  # nobody knows what the broker has seen of it
            fetch.pending.abandon()
            fetch.connection.close()  # the broker may sit on it for max_wait_ms
        self._fetches.clear()

    def seek(self, tp: TopicPartition, offset: int | None) -> None:
        self._positions[tp] = offset

    def position(self, tp: TopicPartition) -> int | None:
        """The offset of the next record; None while it is not known yet."""
        return self._positions[tp]

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    async def poll(self, timeout_s: float) -> list[PartitionFetch]:
        """The answers so far, one entry for each partition of each; empty at the time-out.

        Partitions without records are among them where their HW, LSO or log start is news.  Passing
        errors are in `PartitionFetch.error`, and the next poll tries again.
        """
        deadline = trio.current_time() + timeout_s
        while True:
            with trio.move_on_at(deadline):
                await self._find_positions()
                await self._begin_fetches()
                found = await self._collect()
                if found:
                    return found
                if found is None:
                    await trio.sleep(min(self._cluster.retry_backoff_s, 0.05))
            if trio.current_time() >= deadline:
                return []

    async def offsets(
        self, tps: Iterable[TopicPartition], timestamp: int = LATEST, *, timeout_s: float = 30.0
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and leader epoch by EARLIEST, LATEST or a timestamp, of each partition.

        Passing errors are tried again until `timeout_s`; raises ApiError or OSError.  LATEST is
        the LSO under read_committed.
        """
        wanted = list(tps)
        deadline = trio.current_time() + timeout_s
        while True:
            try:
                return await self._offsets(wanted, timestamp)
            except ApiError as exc:
                if exc.code not in RETRIABLE or trio.current_time() >= deadline:
                    raise
            except OSError:
                if trio.current_time() >= deadline:
                    raise
            await trio.sleep(self._cluster.retry_backoff_s)

    async def _offsets(
        self, wanted: list[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        await self._cluster.ensure(dict.fromkeys(tp.topic for tp in wanted))
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in wanted:
            leader = self._cluster.leader(tp)
            if leader is None:
                self._cluster.mark_stale()
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(tp))
            by_node.setdefault(leader.node, []).append(tp)
        found: dict[TopicPartition, tuple[int, int]] = {}
        for node, group in sorted(by_node.items()):
            found.update(await self._list_offsets(node, group, timestamp))
        return {tp: found[tp] for tp in wanted}

    async def _list_offsets(
        self, node: int, tps: list[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        topic_class = ListOffsetsRequest.ListOffsetsTopic
        topics: dict[str, list[Any]] = {}
        for tp in tps:
            leader = self._cluster.leader(tp)
            partition = topic_class.ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=-1 if leader is None else leader.epoch,
                timestamp=timestamp,
            )
            topics.setdefault(tp.topic, []).append(partition)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.read_committed),
            topics=[topic_class(name=name, partitions=ps) for name, ps in topics.items()],
        )
        try:
            answer = await self._cluster.call(node, request, LIST_OFFSETS_VERSION)
        except OSError:
            self._cluster.mark_stale()
            raise
        found = {}
        for topic in answer.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                code = code_of(p.error_code)
                if code is not ErrorCode.NONE:
                    if code in STALE_METADATA:
                        self._cluster.mark_stale()
                    raise ApiError(code, str(tp))
                found[tp] = (p.offset, p.leader_epoch)
        return found

    # --- inside poll

    async def _find_positions(self) -> None:
        unknown = [tp for tp, offset in self._positions.items() if offset is None]
        if not unknown:
            return
        if self.reset is None:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no offset for {unknown[0]}")
        try:
            for tp, (offset, _) in (await self._offsets(unknown, self.reset)).items():
                self._positions[tp] = offset
        except ApiError as exc:
            if exc.code not in RETRIABLE:
                raise
            await trio.sleep(self._cluster.retry_backoff_s)
        except OSError:
            await trio.sleep(self._cluster.retry_backoff_s)

    async def _begin_fetches(self) -> None:
        cluster = self._cluster
        busy = {tp for fetch in self._fetches.values() for tp in fetch.asked}
        now = trio.current_time()
        by_node: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        leaderless = False
        for tp, offset in self._positions.items():
            if offset is None or tp in busy or self._later.get(tp, 0.0) > now:
                continue
            leader = cluster.leader(tp)
            if leader is None:
                leaderless = True
            elif leader.node not in self._fetches:
                by_node.setdefault(leader.node, {})[tp] = (offset, leader.epoch)
        if leaderless or cluster.stale:
            try:
                await cluster.ensure(dict.fromkeys(tp.topic for tp in self._positions))
                if leaderless:
                    await cluster.refresh()
            except OSError:
                await trio.sleep(cluster.retry_backoff_s)
        for node, asked in sorted(by_node.items()):
            try:
                await self._begin(node, asked)
            except OSError:
                cluster.mark_stale()
                self._put_off(asked)

    async def _begin(self, node: int, asked: dict[TopicPartition, tuple[int, int]]) -> None:
        cluster = self._cluster
        connection = await cluster.connection(node)
        session = self._sessions.setdefault(node, FetchSessionHandler())
        request = session.request(
            {
                tp: FetchPartition(tp, epoch, offset, -1, -1, self.max_partition_bytes)
                for tp, (offset, epoch) in asked.items()
            },
            replica_id=-1,
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(self.read_committed),
        )
        body = build_fetch(request, FETCH_VERSION)
        timeout_s = cluster.request_timeout_s
        try:
            pending = await connection.begin(FETCH, FETCH_VERSION, [body], timeout_s)
        except BaseException:  # a poll whose time is over leaves here, too
            session.reset()
            raise
        deadline = trio.current_time() + timeout_s + self.max_wait_ms / 1000
        self._fetches[node] = _Fetch(node, connection, pending, asked, deadline)

    async def _collect(self) -> list[PartitionFetch] | None:
        """Waits until one answer is there (or failed), and takes all that are; None where no answer
        came."""
        fetches = list(self._fetches.values())
        async with trio.open_nursery() as nursery:
            for fetch in fetches:
                nursery.start_soon(_wait, fetch, nursery.cancel_scope)
        found: list[PartitionFetch] = []
        answered = False
        for fetch in fetches:
            if fetch.error is not None:
                del self._fetches[fetch.node]
                self._sessions[fetch.node].reset()
                fetch.connection.close()
                self._cluster.mark_stale()
                self._put_off(fetch.asked)
            elif fetch.answer is not None:
                del self._fetches[fetch.node]
                found += self._take(fetch, fetch.answer)
                answered = True
        return found if answered else None

    def _put_off(self, tps: Iterable[TopicPartition]) -> None:
        at = trio.current_time() + self._cluster.retry_backoff_s
        for tp in tps:
            self._later[tp] = at

    def _take(self, fetch: _Fetch, body: memoryview) -> list[PartitionFetch]:
        try:
            answer = decode_response(FETCH, FETCH_VERSION, body)
        except BadMessage:
            self._sessions[fetch.node].reset()
            fetch.connection.close()
            self._put_off(fetch.asked)
            return []
        self._sessions[fetch.node].told(answer.error_code, answer.session_id)
        if answer.error_code and code_of(answer.error_code) not in SESSION_ERRORS:
            self._put_off(fetch.asked)
        found = []
        for topic in answer.responses:
            for p in topic.partitions:
                tp = TopicPartition(topic.topic, p.partition_index)
                asked = fetch.asked.get(tp)
                if asked is None or self._positions.get(tp) != asked[0]:
                    continue  # assigned or sought elsewhere meanwhile
                found.append(self._take_partition(tp, p, fetch.node, *asked))
        return found

    def _take_partition(
        self, tp: TopicPartition, p: Any, node: int, position: int, epoch: int
    ) -> PartitionFetch:
        code = code_of(p.error_code)
        result = PartitionFetch(
            tp,
            code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            node,
            epoch,
            position,
        )
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.reset is None:
                raise ApiError(code, f"{tp} has no offset {position}")
            self._positions[tp] = None
        elif code is not ErrorCode.NONE:
            if code not in RETRIABLE and code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                raise ApiError(code, str(tp))
            if code in STALE_METADATA:
                self._cluster.mark_stale()
            self._put_off([tp])
        elif p.records:
            aborted = None
            if self.read_committed:
                listed = p.aborted_transactions or ()
                aborted = [(a.producer_id, a.first_offset) for a in listed]
            try:
                result.records, result.position = visible(
                    memoryview(p.records), position, aborted, verify=self.verify
                )
            except CorruptBatch as exc:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: {exc}") from exc
            self._positions[tp] = result.position
        return result


async def _wait(fetch: _Fetch, scope: trio.CancelScope) -> None:
    try:
        with trio.move_on_at(fetch.deadline):
            fetch.answer = await fetch.pending.wait()
        if fetch.answer is None and trio.current_time() >= fetch.deadline:
            fetch.error = TimeoutError("no answer to a Fetch")
    except OSError as exc:
        fetch.error = exc
    scope.cancel()
