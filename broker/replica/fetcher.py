"""Replica fetchers: the tasks that keep followers' logs equal to their leaders'.

For each leader broker there are num.replica.fetchers fetchers, each with one connection and one
long-polling Fetch in flight for all its partitions, in an incremental fetch session (KIP-227).
Before a partition is fetched it is brought in line with the leader (`fetch_state`).  Neither a
failover nor a new topic may wait for a long poll: a fetch that waits at the leader is given up,
with its connection, when partitions are added, and it waits no longer than a partition is delayed.

A fetch looks only at the partitions that are *due*: those in the last answer, those that were
added, removed or delayed, and those whose log start moved.  The session asks for all others as
before, so a fetch costs as much as has changed.

An answer is used only for partitions whose state is still that of the request: a LeaderAndIsr may
have come meanwhile.

Source: AbstractFetcherThread, ReplicaFetcherThread; KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

import logging
import struct
from math import ceil, inf
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import in_turns, monotonic_ms
from highwater.broker.log.parts import UnexpectedOffsetError
from highwater.broker.quota.rates import SampledRate
from highwater.broker.replica.fetch_state import (
    FetchState,
    cuts_as_epochs_say,
    nothing_is_proved,
    truncation_step,
)
from highwater.broker.replica.leader_offsets import EARLIEST, LATEST, list_offsets
from highwater.kafka.client.connection import ClientConnection, RequestTimedOut
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import (
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    build_fetch,
    parse_fetch_answer,
)
from highwater.kafka.wire.fetch_session_handler import SESSION_ERRORS, FetchSessionHandler
from highwater.kafka.wire.messages import OffsetForLeaderEpochRequest
from highwater.kafka.wire.records import validate_fetched

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.replica.partition import Partition
    from highwater.broker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

FETCH, FETCH_VERSION = 1, 11
OFFSETS_FOR_EPOCH_VERSION = 3
FIRST_BACKOFF_S, THROTTLED_S = 0.02, 0.1
AT_ONCE = 100
"""Partitions in one OffsetsForLeaderEpoch, and those of an answer before other tasks run."""
CUTS_AT_ONCE = 10
BYTES_AT_ONCE = 1 << 20
"""Bytes of an answer that are appended before other tasks run: a few milliseconds."""
RATE_SAMPLES, RATE_WINDOW_MS = 7, 10_000
"""The window of the fetch rate in the metrics: about a minute."""

Address = tuple[str, int]


class ReplicaFetcher:
    """See the module's docstring."""

    def __init__(self, manager: ReplicaManager, leader: int, number: int, address: Address) -> None:
        self.manager = manager
        self.leader = leader
        self.number = number
        self.address = address
        self.states: dict[TopicPartition, FetchState] = {}
        self._due: dict[TopicPartition, None] = {}
        """The partitions about which the session's next request may have something new to say."""
        self._max_bytes = 0
        """replica.fetch.max.bytes, as the session knows it."""
        self.fetches = SampledRate(RATE_SAMPLES, RATE_WINDOW_MS)
        self._session = FetchSessionHandler()
        self._added = trio.Event()
        self._adds = 0
        self._poll: trio.CancelScope | None = None
        self._connection: ClientConnection | None = None

    def add(self, partition: Partition, address: Address) -> None:
        """Takes over a partition, and interrupts the fetch that is under way for the others."""
        follower_log = partition.require_log()
        if not partition.in_isr and follower_log.doubtful_from is not None:
            log.warning(
                "%s: takes all from offset %d on anew: some may be missing since a power loss",
                partition.tp, follower_log.doubtful_from,
            )  # fmt: skip
            partition.truncate_to(follower_log.doubtful_from)
            follower_log.doubtful_from = None
        state = FetchState(partition.leader_epoch, follower_log.log_end_offset)
        state.in_sync = partition.in_isr  # until its first fetch shows
        if follower_log.epochs.latest < 0:
            # epochs prove nothing about an empty log, or about one older than epochs
            partition.truncate_to(min(partition.high_watermark, follower_log.log_end_offset))
            state.offset, state.truncating = follower_log.log_end_offset, False
        self.states[partition.tp] = state
        self.look_at(partition.tp)
        if address != self.address:
            self.address = address
            self._disconnect()
        self._added.set()
        self._adds += 1
        if self._poll is not None:
            self._poll.cancel()

    def remove(self, tp: TopicPartition) -> None:
        """Gives up a partition: no answer changes its log any more."""
        if self.states.pop(tp, None) is not None:
            self.look_at(tp)

    def look_at(self, tp: TopicPartition) -> None:
        """Makes a partition due."""
        self._due[tp] = None

    # ---------------------------------------------------------------- the loop

    async def run(self) -> None:
        failures = 0
        while True:
            if not self.states:
                await self._wait_added(None)
                continue
            try:
                await self._round()
                failures = 0
            except OSError as e:
                log.debug("fetcher of %d at %s: %s", self.leader, self.address, e)
                failures += 1
                if isinstance(e, ConnectionError):
                    self.manager.leader_lost(self.leader)
                self._disconnect()
                await self._wait_added(self._backoff_s(failures))

    async def _wait_added(self, timeout_s: float | None) -> None:
        with trio.move_on_after(timeout_s if timeout_s is not None else float("inf")):
            await self._added.wait()
        self._added = trio.Event()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._session.reset()

    async def _round(self) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            self._session.reset()
            connection = self._connection = await ClientConnection.open(
                self.manager.world.network,
                *self.address,
                f"broker-{self.manager.broker_id}-fetcher-{self.number}",
                timeout_s=self._timeout,
            )
        self._look_around()
        await self._bring_in_line(connection)
        await self._fetch(connection)

    def _look_around(self) -> None:
        """Makes all partitions due if the session is new, if replica.fetch.max.bytes has changed,
        and while there is a throttle, which may hold back any of them at any time."""
        max_bytes = self.manager.config.replica_fetch_max_bytes
        throttled = self.manager.throttles.follower.in_use
        if self._session.is_new or throttled or max_bytes != self._max_bytes:
            self._due.update(dict.fromkeys(self.states))
        self._max_bytes = max_bytes

    async def _changes(self, now: float) -> dict[TopicPartition, FetchPartition | None]:
        """What the next request says of the due partitions; those delayed stay due."""
        quota, partitions, states = (
            self.manager.throttles.follower,
            self.manager.partitions,
            self.states,
        )
        throttled, now_ms = quota.in_use, int(now * 1000)
        changes: dict[TopicPartition, FetchPartition | None] = {}
        for n, tp in enumerate(list(self._due), 1):
            if n % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            state = states.get(tp)
            changes[tp] = None
            if state is None or state.truncating or state.ready_at > now:
                continue
            if throttled and not state.in_sync and quota.holds_back(tp, now_ms):
                state.ready_at = now + THROTTLED_S
                continue
            start = partitions[tp].require_log().log_start_offset
            changes[tp] = state.ask(tp, start, self._max_bytes)
        if len(changes) >= AT_ONCE:  # some may have been removed meanwhile
            changes = {tp: p if tp in states else None for tp, p in changes.items()}
        due = {tp: None for tp in self._due if tp not in changes}
        for tp, p in changes.items():
            if p is None and tp in states:
                due[tp] = None
        self._due = due
        return changes

    @property
    def _timeout(self) -> float:
        return self.manager.config.replica_socket_timeout_ms / 1000

    def _delay(self, state: FetchState) -> None:
        state.failures += 1
        state.ready_at = trio.current_time() + self._backoff_s(state.failures)

    def _backoff_s(self, failures: int) -> float:
        """Short at first, later up to replica.fetch.backoff.ms: a follower often learns of a leader
        before the leader itself does, and acks=all waits for the follower."""
        longest = self.manager.config.replica_fetch_backoff_ms / 1000
        return min(FIRST_BACKOFF_S * 2 ** min(failures - 1, 10), longest)

    def _fenced(self, tp: TopicPartition, code: int) -> None:
        """Gives up a partition whose leader has a newer epoch: only a LeaderAndIsr can help."""
        log.info("%s: fetcher fenced by leader %d (%s)", tp, self.leader, ErrorCode(code).name)
        self.remove(tp)

    # ---------------------------------------------------------------- truncation

    async def _bring_in_line(self, connection: ClientConnection) -> None:
        now, todo = trio.current_time(), []
        for tp in self._due:
            state = self.states.get(tp)
            if state is not None and state.truncating and state.ready_at <= now:
                todo.append((tp, state))
        for first in range(0, len(todo), AT_ONCE):
            await self._ask_for_ends(connection, dict(todo[first : first + AT_ONCE]))

    async def _ask_for_ends(
        self, connection: ClientConnection, todo: dict[TopicPartition, FetchState]
    ) -> None:
        request = OffsetForLeaderEpochRequest
        topics: dict[str, list[object]] = {}
        for tp, state in todo.items():
            if self.states.get(tp) is not state:
                continue  # removed during a request for others
            partition = self.manager.partitions[tp]
            topics.setdefault(tp.topic, []).append(
                request.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=state.leader_epoch,
                    leader_epoch=partition.require_log().epochs.latest,
                )
            )
        answer = await connection.call(
            request(
                replica_id=self.manager.broker_id,
                topics=[
                    request.OffsetForLeaderTopic(topic=t, partitions=p) for t, p in topics.items()
                ],
            ),
            OFFSETS_FOR_EPOCH_VERSION,
            self._timeout,
        )
        unproved: dict[TopicPartition, FetchState] = {}
        for topic in answer.topics:
            async for p in in_turns(topic.partitions, CUTS_AT_ONCE):
                tp = TopicPartition(topic.topic, p.partition)
                if (asked := todo.get(tp)) is None or self.states.get(tp) is not asked:
                    continue
                self._truncate(tp, asked, p.error_code, p.leader_epoch, p.end_offset)
                if not asked.truncating and self._is_unproved(tp, p.end_offset):
                    asked.truncating, unproved[tp] = True, asked
        # before the first append, no checkpoint may name more than the cut logs hold
        await self.manager.logs.settle()
        if unproved:
            await self._prove(connection, unproved)

    def _truncate(
        self, tp: TopicPartition, state: FetchState, error: int, epoch: int, end: int
    ) -> None:
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced(tp, error)
            return
        if error != ErrorCode.NONE:
            self._delay(state)
            return
        partition = self.manager.partitions[tp]
        follower_log = partition.require_log()
        step = truncation_step(follower_log, partition.high_watermark, epoch, end)
        if step.offset < follower_log.log_end_offset:
            assert cuts_as_epochs_say(follower_log, step.offset, epoch, end), "invariant 5"
            log.info(
                "%s: truncating from %d to %d (HW %d), the leader's epoch %d ends at %d",
                tp, follower_log.log_end_offset, step.offset, partition.high_watermark, epoch, end,
            )  # fmt: skip
        try:
            partition.truncate_to(step.offset)
        except OSError as e:
            self.manager.disk_failed(partition, e)
            return
        state.offset = follower_log.log_end_offset
        state.truncating = not step.done and follower_log.epochs.latest >= 0
        state.failures = 0

    def _is_unproved(self, tp: TopicPartition, leader_end: int) -> bool:
        """Whether the leader's epochs would prove nothing if its log began at this log's end."""
        partition = self.manager.partitions[tp]
        end = partition.require_log().log_end_offset
        # being in the ISR is no proof: a deposed leader may still be in the one that it is sent
        return partition.high_watermark < end == leader_end

    async def _prove(
        self, connection: ClientConnection, unproved: dict[TopicPartition, FetchState]
    ) -> None:
        """Drops logs that prove nothing, before a first fetch could count them as in sync."""
        starts = await self._list_offsets(connection, unproved, EARLIEST)
        for tp, state in unproved.items():
            if self.states.get(tp) is not state:
                continue
            if (start := starts.get(tp)) is None:
                self._delay(state)
                continue
            partition = self.manager.partitions[tp]
            end, high_watermark = partition.require_log().log_end_offset, partition.high_watermark
            if nothing_is_proved(end, high_watermark, start):
                log.info(
                    "%s: starts anew at %d, where leader %d begins: what lies from %d to %d may"
                    " differ from what was committed there",
                    tp, start, self.leader, high_watermark, end,
                )  # fmt: skip
                try:
                    partition.restart_at(start)
                except OSError as e:
                    self.manager.disk_failed(partition, e)
                    continue
            state.offset, state.truncating = partition.require_log().log_end_offset, False

    # ---------------------------------------------------------------- fetching

    async def _fetch(self, connection: ClientConnection) -> None:
        now, adds = trio.current_time(), self._adds
        changes = await self._changes(now)
        if self._adds != adds:
            return  # a partition added in between would wait for this fetch
        if not any(changes.values()) and not self._session.others(changes):
            if self._due:
                waits = [self.states[tp].ready_at for tp in self._due]
                await self._wait_added(max(min(waits) - now, 0.001))
            return  # all are removed or delayed
        config = self.manager.config
        request = self._session.change(
            changes,
            replica_id=self.manager.broker_id,
            max_wait_ms=self._max_wait_ms(now),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
        )
        body = build_fetch(request, FETCH_VERSION)
        self._poll = poll = trio.CancelScope()
        try:
            view = await connection.call_raw(FETCH, FETCH_VERSION, [body], self._timeout, poll)
        except RequestTimedOut:
            if trio.current_time() >= poll.deadline:
                raise
            self._disconnect()
            return
        finally:
            self._poll = None
        self.fetches.record(1, monotonic_ms())
        try:
            answer = parse_fetch_answer(view, FETCH_VERSION)
        except (struct.error, ValueError, IndexError) as e:
            raise ConnectionError(
                f"leader {self.leader} sent a Fetch answer that is broken: {e}"
            ) from e
        await self._take(connection, answer)

    def _max_wait_ms(self, now: float) -> int:
        """replica.fetch.wait.max.ms, or until a partition that this fetch leaves out is ready."""
        most = self.manager.config.replica_fetch_wait_max_ms
        delays = [s.ready_at - now for tp in self._due if (s := self.states.get(tp))]
        return max(0, ceil(min(min(delays, default=inf) * 1000, most)))

    async def _take(self, connection: ClientConnection, answer: FetchAnswer) -> None:
        self._session.answered(answer)
        if answer.error in SESSION_ERRORS:
            return
        if answer.error:
            raise ConnectionError(f"leader {self.leader} answered {ErrorCode(answer.error).name}")
        for fetched in answer.partitions:
            self._due[fetched.tp] = None
        lost: list[TopicPartition] = []
        size = 0
        for n, fetched in enumerate(answer.partitions, 1):
            if n % AT_ONCE == 0 or size + fetched.size > BYTES_AT_ONCE:
                await trio.lowlevel.checkpoint()
                size = 0
            size += fetched.size
            tp = fetched.tp
            state = self.states.get(tp)
            if state is None or state.asked is None or state.truncating:
                continue
            if state.asked is not self._session.asked(tp):
                continue  # it is not the state of the request
            if state.offset != state.asked.fetch_offset:
                continue
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                lost.append(tp)
            elif fetched.error == ErrorCode.FENCED_LEADER_EPOCH:
                self._fenced(tp, fetched.error)
            elif fetched.error:
                log.debug("%s: leader answers %s", tp, ErrorCode(fetched.error).name)
                self._delay(state)
            else:
                self._append(tp, state, fetched)
        for tp in lost:
            await self._find_place(connection, tp)
        for fetched in answer.partitions:
            partition = self.manager.partitions.get(fetched.tp)
            if partition is not None and partition.log is not None and partition.log.flush_due:
                await self._flush(partition, partition.log)

    async def _flush(self, partition: Partition, follower_log: Log) -> None:
        """Flushes (flush.messages=1) before the next fetch says what this broker has."""
        try:
            await follower_log.flush()
        except OSError as e:
            self.manager.disk_failed(partition, e)

    def _append(self, tp: TopicPartition, state: FetchState, fetched: FetchedPartition) -> None:
        partition = self.manager.partitions[tp]
        try:
            headers = validate_fetched(fetched.records) if fetched.size else []
            partition.append_fetched(
                fetched.records, headers, fetched.high_watermark, fetched.log_start_offset
            )
        except OSError as e:
            self.manager.disk_failed(partition, e)
            return
        except ApiError as e:
            log.error(
                "%s: what leader %d sent at %d is refused: %s", tp, self.leader, state.offset, e
            )
            self._delay(state)
            return
        except UnexpectedOffsetError as e:
            # truncation should have made the logs equal, and has not: only a new leader epoch can
            # mend that, and the other partitions must not suffer for it
            log.error(
                "%s: what leader %d sent does not continue this log (%s): not fetched until its"
                " next leader epoch", tp, self.leader, e,
            )  # fmt: skip
            self.remove(tp)
            return
        stats = self.manager.topic_stats
        stats.replication_bytes_in += fetched.size
        if self.manager.broker_id in partition.adding:
            stats.reassignment_bytes_in += fetched.size
        state.offset = partition.require_log().log_end_offset
        state.failures = 0
        state.in_sync = fetched.high_watermark <= state.offset
        state.lag = max(0, fetched.high_watermark - state.offset)
        if (quota := self.manager.throttles.follower).is_throttled(tp):
            quota.record(fetched.size, monotonic_ms())

    async def _find_place(self, connection: ClientConnection, tp: TopicPartition) -> None:
        """Brings a log in line whose end is outside the leader's log: above the leader's end
        (after an unclean election), or below its start.
        """
        state, partition = self.states.get(tp), self.manager.partitions.get(tp)
        if state is None or partition is None:
            return
        end = (await self._list_offsets(connection, {tp: state}, LATEST)).get(tp)
        start = (await self._list_offsets(connection, {tp: state}, EARLIEST)).get(tp)
        if self.states.get(tp) is not state or end is None or start is None:
            self._delay(state)
            return
        follower_log = partition.require_log()
        try:
            if end < follower_log.log_end_offset:
                log.warning("%s: ahead of leader %d, cut to its end %d", tp, self.leader, end)
                partition.truncate_to(end)
            elif start > follower_log.log_end_offset:
                log.info("%s: starts anew at %d, where leader %d begins", tp, start, self.leader)
                partition.restart_at(start)
        except OSError as e:
            self.manager.disk_failed(partition, e)
            return
        state.offset = follower_log.log_end_offset

    async def _list_offsets(
        self, connection: ClientConnection, states: dict[TopicPartition, FetchState], which: int
    ) -> dict[TopicPartition, int]:
        epochs = {tp: state.leader_epoch for tp, state in states.items()}
        broker_id = self.manager.broker_id
        return await list_offsets(connection, broker_id, epochs, which, self._timeout)
