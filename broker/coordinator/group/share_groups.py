"""The shell around share groups: a part of the group coordinator.

A request is answered when its records are committed; one that changes nothing, when what was
appended before it is.  Then the state of share-partitions that have none is initialized, by the
persister, in a task of its own: the member's heartbeats go on, and one of them brings what has
become assignable.

A group's id is that of one kind of group: no member of another protocol joins a share group, and a
share group begins where there is no group of its id, not even an empty one.

Source: GroupCoordinatorService of Apache Kafka 4.2.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property, partial

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.coordinator.group.consumer.heartbeats import Beat, Heartbeat
from highwater.broker.coordinator.group.consumer.members import LEFT, Partitions
from highwater.broker.coordinator.group.consumer_groups import RETRY_MS, ConsumerGroups
from highwater.broker.coordinator.group.rebalance_meter import RebalanceMeter
from highwater.broker.coordinator.group.records import GroupLogRecord
from highwater.broker.coordinator.group.shard import GroupShard, ShareWrite
from highwater.broker.coordinator.group.share.records import ShareRecord
from highwater.broker.coordinator.group.share.share_group import KeptShareGroup, ShareGroup
from highwater.broker.coordinator.group.share.share_steps import Limits, ShareSteps, Step, check
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.runtime import STORE_ERRORS
from highwater.broker.coordinator.shard import PendingWrite
from highwater.broker.settings.group_configs import SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT
from highwater.broker.share.persister import NO_OFFSET, Persister, SharePartitionKey, StateAnswer
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import SHARE_VERSION

log = logging.getLogger(__name__)

SHARE_SESSION = "share session"
BUSY_POLL_S = 0.05
Place = tuple[bytes, int]
"""A share-partition of a group: a topic's id and a partition."""


class ShareGroups(ConsumerGroups):
    """What the group coordinator does for share groups."""

    persister: Persister
    """Keeps the state of share-partitions."""

    @cached_property
    def share_rebalances(self) -> RebalanceMeter:
        return RebalanceMeter()

    @abstractmethod
    def _append_records(self, shard: GroupShard, records: Iterable[GroupLogRecord]) -> int:
        """Appends records together, and returns the offset behind them; raises ApiError."""

    @property
    def has_share_groups(self) -> bool:
        return SHARE_VERSION in dict(self.metadata.features)

    def check_share_groups(self) -> None:
        """Raises ApiError where share groups are not in use."""
        if not self.has_share_groups:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a registered broker lacks share groups")

    def share_steps(self, group: ShareGroup) -> ShareSteps:
        config, name = self.config, group.group_id
        session, beat = (
            config.group_share_session_timeout_ms, config.group_share_heartbeat_interval_ms,
        )  # fmt: skip
        limits = Limits(
            self.configs.number(name, SHARE_SESSION_TIMEOUT, session),
            self.configs.number(name, SHARE_HEARTBEAT_INTERVAL, beat),
            config.group_share_max_size,
        )
        return ShareSteps(group, limits, self.topics)

    # ---------------------------------------------------------------- members

    def share_heartbeat(self, group_id: str, request: Heartbeat, ticket: Waiting) -> None:
        """Takes a member's heartbeat; raises ApiError."""
        self.check_share_groups()
        check(request)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty; set group.id")
        self.want_configs()
        shard = self._named(group_id)
        kept, group = self.share_group_for(shard, group_id, make=request.epoch == 0)
        before = group.state
        try:
            steps = self.share_steps(group)
            leaves = request.epoch == LEFT
            step = steps.leave(request.member_id) if leaves else steps.heartbeat(request)
            self._take_step(shard, kept, step, ticket)
            if kept.group is not None:
                kept.group.seen = group.seen
        finally:
            shard.drop_share_group_if_unused(kept)
        self._log_share_group(shard, kept, before)

    def share_group_for(
        self, shard: GroupShard, group_id: str, *, make: bool
    ) -> tuple[KeptShareGroup, ShareGroup]:
        """The share group, or a new one; raises GROUP_ID_NOT_FOUND."""
        if group_id in shard.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is not a share group")
        found = shard.share_groups.get(group_id)
        if not make and (found is None or found.group is None):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id}")
        kept = shard.share_group(group_id)
        return kept, kept.group or ShareGroup(group_id)

    def _take_step(
        self, shard: GroupShard, kept: KeptShareGroup, step: Step, ticket: Waiting | None = None
    ) -> None:
        """Carries out a step.  Where its records cannot be appended, the end of a session is tried
        again."""
        refused = False
        if step.rebalances:
            self.share_rebalances.record(monotonic_ms())

        def then(error: ErrorCode) -> None:
            nonlocal refused
            refused = bool(error)
            if ticket is not None:
                code = STORE_ERRORS.get(error, error)
                self.answer(ticket, Beat(code) if code else step.answer)
            if error:
                _no_longer(kept.group, step.initialize)
            elif step.initialize and self._nursery is not None:
                self._nursery.start_soon(
                    self._initialize_later, shard, kept, step.initialize, step.epoch
                )

        self.append_share_records(shard, kept, step.records, then)
        if kept.group is not None and not refused:
            kept.group.busy.update(dict.fromkeys(_places(step.initialize)))
        for member_id, delay in step.sessions.items():
            if not (refused and delay is not None):
                again = RETRY_MS if refused else delay
                self._set_session(shard, kept, member_id, again)

    async def _initialize_later(
        self, shard: GroupShard, kept: KeptShareGroup, parts: Partitions, epoch: int
    ) -> None:
        try:
            await self.initialize(shard, kept, parts, epoch, {})
        except ApiError as e:
            log.info("share group %s: its state is not initialized: %s", kept.group_id, e)
        except Exception:  # the next heartbeat begins again
            log.exception("share group %s: its state is not initialized", kept.group_id)

    async def initialize(
        self,
        shard: GroupShard,
        kept: KeptShareGroup,
        parts: Partitions,
        epoch: int,
        offsets: Mapping[Place, int],
    ) -> dict[Place, StateAnswer]:
        """Has the state of share-partitions initialized, with these start offsets, and notes of
        which that was done; raises ApiError.  Meanwhile no heartbeat begins it a second time."""
        group = kept.group
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        places = _places(parts)
        with _busy(group, parts):
            answers = await self.for_each(
                kept.group_id,
                parts,
                lambda key: self.persister.initialize(
                    key, epoch, offsets.get((key.topic_id, key.partition), NO_OFFSET)
                ),
            )
            done = [place for place, answer in answers.items() if not answer.error]
            if len(done) < len(places):
                code = next(answer.error for answer in answers.values() if answer.error)
                left = len(places) - len(done)
                log.warning("share group %s: %d partitions of %d have no state yet: %s",
                            kept.group_id, left, len(places), code.name)  # fmt: skip
            if kept.group is group:
                records = self.share_steps(group).ended(parts, partitions_of(done))
                await self.store(shard, kept, records)
            return answers

    @asynccontextmanager
    async def only_one(self, kept: KeptShareGroup, parts: Partitions) -> AsyncIterator[ShareGroup]:
        """Gives the group when nobody else has the state of these share-partitions initialized or
        deleted, and sees to it that nobody does meanwhile; raises ApiError if it has members."""
        places = _places(parts)
        while not empty_group(kept.group).busy.keys().isdisjoint(places):
            await trio.sleep(BUSY_POLL_S)
        group = empty_group(kept.group)
        with _busy(group, parts):
            yield group

    async def for_each(
        self,
        group_id: str,
        parts: Partitions,
        call: Callable[[SharePartitionKey], Awaitable[StateAnswer]],
    ) -> dict[Place, StateAnswer]:
        """The persister's answers to a call for each share-partition."""
        answers: dict[Place, StateAnswer] = {}

        async def ask(place: Place) -> None:
            answers[place] = await call(SharePartitionKey(group_id, *place))

        async with trio.open_nursery() as nursery:
            for place in _places(parts):
                nursery.start_soon(ask, place)
        return dict(sorted(answers.items()))

    # ---------------------------------------------------------------- sessions

    def _set_session(
        self, shard: GroupShard, kept: KeptShareGroup, member_id: str, delay: int | None
    ) -> None:
        key = (kept.group_id, SHARE_SESSION, member_id)
        timer = shard.timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if delay is not None and not shard.closed:
            shard.timers[key] = self.purgatories.call_at(
                monotonic_ms() + delay, partial(self._session_due, shard, kept, member_id)
            )

    def _session_due(self, shard: GroupShard, kept: KeptShareGroup, member_id: str) -> None:
        shard.timers.pop((kept.group_id, SHARE_SESSION, member_id), None)
        group = kept.group
        if not shard.leads or group is None or member_id not in group.members:
            return
        log.info("share group %s: member %s was not heard of", kept.group_id, member_id)
        before = group.state
        try:
            self._take_step(shard, kept, self.share_steps(group).timed_out(member_id))
        except Exception:  # the wheel must go on turning
            log.exception("share group %s: the end of a session failed", kept.group_id)
        self._log_share_group(shard, kept, before)

    def share_groups_loaded(self, shard: GroupShard) -> None:
        for kept in shard.share_groups.values():
            if kept.group is not None:
                self.want_configs()
                self._take_step(shard, kept, self.share_steps(kept.group).loaded())

    def share_groups_unloaded(self, shard: GroupShard) -> None:
        for kept in shard.share_groups.values():
            if kept.group is not None:
                kept.group.dead = True

    # ---------------------------------------------------------------- deletion

    def delete_share_group(self, shard: GroupShard, kept: KeptShareGroup, ticket: Waiting) -> None:
        """Deletes a group without members, and the state of its share-partitions before it; the
        ticket is answered with an error code."""
        assert self._nursery is not None
        self._nursery.start_soon(self._delete, shard, kept, ticket)

    async def _delete(self, shard: GroupShard, kept: KeptShareGroup, ticket: Waiting) -> None:
        try:
            known = empty_group(kept.group).state_topics
            parts = self.with_state(known.deleting)
            for topics in (known.initialized, known.initializing):
                for topic_id, numbers in topics.items():
                    parts[topic_id] = parts.get(topic_id, frozenset()) | numbers
            async with self.only_one(kept, parts) as group:
                if parts:
                    await self.store(shard, kept, self.share_steps(group).deleting(parts))
                    await self.delete_state(shard, kept, parts)
                await self.store(shard, kept, empty_group(kept.group).tombstones())
        except ApiError as e:
            self.answer(ticket, e.code)
        except Exception:
            log.exception("share group %s: it was not deleted", kept.group_id)
            self.answer(ticket, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            log.info("share group %s: deleted", kept.group_id)
            self.answer(ticket, ErrorCode.NONE)

    def with_state(self, topic_ids: Iterable[bytes]) -> dict[bytes, frozenset[int]]:
        """All partitions of those topics that still exist: they may have state."""
        found = {}
        for topic_id in topic_ids:
            name = self.topics.name_of(topic_id)
            topic = None if name is None else self.topics.topic(name)
            if topic is not None:
                found[topic_id] = frozenset(range(topic.partitions))
        return found

    async def delete_state(
        self, shard: GroupShard, kept: KeptShareGroup, parts: Partitions
    ) -> None:
        """Deletes the state of share-partitions; raises ApiError.  A topic that is gone has
        none."""
        answers = await self.for_each(kept.group_id, parts, self.persister.delete)
        for answer in answers.values():
            if answer.error and answer.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ApiError(answer.error, answer.message)
        if not shard.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    def share_topics_deleted(self, topic_ids: Sequence[bytes]) -> None:
        """Forgets the state of topics that no longer exist."""
        for shard in self.shards.values() if topic_ids else ():
            for kept in list(shard.share_groups.values()) if shard.loaded and shard.leads else ():
                if kept.group is not None:
                    records = self.share_steps(kept.group).forgotten(topic_ids)
                    if records:
                        self.append_share_records(shard, kept, records, lambda _: None)

    # ---------------------------------------------------------------- carrying out

    async def store(
        self, shard: GroupShard, kept: KeptShareGroup, records: Sequence[ShareRecord]
    ) -> None:
        """Appends records, and waits until they are committed; raises ApiError."""
        result: list[ErrorCode] = []
        known = trio.Event()

        def then(code: ErrorCode) -> None:
            result.append(STORE_ERRORS.get(code, code))
            known.set()

        if not shard.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        self.append_share_records(shard, kept, records, then)
        await known.wait()
        if result[0]:
            raise ApiError(result[0])

    def append_share_records(
        self,
        shard: GroupShard,
        kept: KeptShareGroup,
        records: Sequence[ShareRecord],
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Calls `then` once: when the HW has passed the records, and those before them."""
        if records:
            try:
                end_offset = self._append_records(shard, records)
            except ApiError as e:
                log.warning("share group %s: nothing could be appended to %s: %s",
                            kept.group_id, shard.partition.tp, e)  # fmt: skip
                then(e.code)
                return
            kept.appended(records)
        elif kept.pending_writes:
            end_offset = shard.pending[-1].end_offset
        else:
            then(ErrorCode.NONE)
            return
        kept.pending_writes += 1
        pending = PendingWrite(kept, ShareWrite(tuple(records), then), end_offset)
        self._wait_for_hw(shard, pending, self.config.offsets_commit_timeout_ms)

    def _log_share_group(self, shard: GroupShard, kept: KeptShareGroup, before: object) -> None:
        group = kept.group
        if group is not None and group.state is not before:
            log.info(
                "share group %s: %s, epoch %d, %d members (%s)",
                group.group_id, group.state.value, group.epoch, len(group.members),
                shard.partition.tp,
            )  # fmt: skip


def empty_group(group: ShareGroup | None) -> ShareGroup:
    """The group; raises ApiError if it has members, or is gone."""
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    return group


@contextmanager
def _busy(group: ShareGroup, parts: Partitions) -> Iterator[None]:
    group.busy.update(dict.fromkeys(_places(parts)))
    try:
        yield
    finally:
        _no_longer(group, parts)


def _no_longer(group: ShareGroup | None, parts: Partitions) -> None:
    if group is not None:
        for place in _places(parts):
            group.busy.pop(place, None)


def _places(parts: Partitions) -> list[Place]:
    return [(topic_id, number) for topic_id, numbers in parts.items() for number in sorted(numbers)]


def partitions_of(places: Iterable[Place]) -> Partitions:
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, number in places:
        found[topic_id] = found.get(topic_id, frozenset()) | {number}
    return found
