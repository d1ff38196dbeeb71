"""The shell around groups of the consumer protocol: a part of the group coordinator.

A request that changes nothing is answered at once, but not before what earlier requests of its
group have appended is committed: the answer tells of it.

Source: GroupCoordinatorService, CoordinatorRuntime of Kafka.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.coordinator.group import moves, topic_patterns
from highwater.broker.coordinator.group.consumer import assignors
from highwater.broker.coordinator.group.consumer.classic_members import ClassicSteps
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.consumer_group import State as ConsumerState
from highwater.broker.coordinator.group.consumer.consumer_steps import (
    JOINING,
    MEMBER_SESSION,
    REVOCATION,
    SYNCING,
    Step,
    Steps,
)
from highwater.broker.coordinator.group.consumer.heartbeats import (
    Beat,
    Heartbeat,
    Limits,
    check,
)
from highwater.broker.coordinator.group.consumer.members import Resolved
from highwater.broker.coordinator.group.consumer.migration import (
    BecomesClassic,
    MigrationPolicy,
)
from highwater.broker.coordinator.group.consumer.records import CONSUMER_RECORDS
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topic
from highwater.broker.coordinator.group.group import Group, Outcome, State, Write
from highwater.broker.coordinator.group.protocol import Join, Joined, Sync, Synced
from highwater.broker.coordinator.group.rebalance import Rebalancing
from highwater.broker.coordinator.group.rebalance_meter import RebalanceMeter
from highwater.broker.coordinator.group.records import GroupLogRecord, GroupRecord
from highwater.broker.coordinator.group.shard import GroupShard
from highwater.broker.coordinator.group.topic_patterns import MayDescribe
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.runtime import STORE_ERRORS, Coordinator
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.broker.settings.group_configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupConfigs,
)
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import GROUP_VERSION
from highwater.kafka.topic_ids import NO_ID

log = logging.getLogger(__name__)

RETRY_MS = 1000
_WHY = {
    MEMBER_SESSION: "was not heard of",
    REVOCATION: "kept partitions for too long",
    JOINING: "did not join again in time",
    SYNCING: "did not sync in time",
}


class CachedTopics:
    """The topics in this broker's metadata cache."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._looked_at = -1
        self._names: frozenset[str] = frozenset()
        self._version = 0

    @property
    def version(self) -> int:
        """Grows when a topic comes or goes."""
        if self._looked_at != self._metadata.generation:
            names = frozenset(self._metadata.topics())
            self._version += names != self._names
            self._names, self._looked_at = names, self._metadata.generation
        return self._version

    def names(self) -> Iterable[str]:
        return self._metadata.topics()

    def topic(self, name: str) -> Topic | None:
        topic_id = self._metadata.topic_id(name)
        if topic_id == NO_ID:
            return None
        return Topic(topic_id, len(self._metadata.partitions_of(name)))

    def name_of(self, topic_id: bytes) -> str | None:
        return self._metadata.topic_of(topic_id)

    def racks(self, name: str) -> tuple[tuple[str, ...], ...]:
        brokers = self._metadata.brokers()
        racks = {number: info.rack for number, info in brokers.items() if info.rack}
        return tuple(
            tuple(sorted(racks[r] for r in partition.replicas if r in racks))
            for _, partition in sorted(self._metadata.partitions_of(name).items())
        )


class ConsumerGroups(Coordinator[GroupShard, GroupLogRecord]):
    """What the group coordinator does for groups of the consumer protocol."""

    @cached_property
    def topics(self) -> CachedTopics:
        return CachedTopics(self.metadata)

    @cached_property
    def rebalances(self) -> RebalanceMeter:
        return RebalanceMeter()

    @cached_property
    def configs(self) -> GroupConfigs:
        return GroupConfigs()

    @cached_property
    def consumer_limits(self) -> Limits:
        """Those of a group without properties of its own."""
        config = self.config
        return Limits(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
            assignors.names(config.group_consumer_assignors),
            policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
            classic_max_size=config.group_max_size,
        )

    @abstractmethod
    def _named(self, group_id: str) -> GroupShard:
        """The shard of a group, for requests that must name a group."""

    @abstractmethod
    def _steps(self, group: Group) -> Rebalancing: ...

    @abstractmethod
    def _apply(self, shard: GroupShard, group: Group, outcome: Outcome) -> None:
        """Carries out an outcome."""

    @property
    def has_consumer_protocol(self) -> bool:
        return GROUP_VERSION in dict(self.metadata.features)

    def consumer_steps(self, group: ConsumerGroup) -> Steps:
        limits, name, of = self.consumer_limits, group.group_id, self.configs
        if of.of(name):
            limits = replace(
                limits,
                session_timeout_ms=of.number(name, SESSION_TIMEOUT, limits.session_timeout_ms),
                heartbeat_interval_ms=of.number(
                    name, HEARTBEAT_INTERVAL, limits.heartbeat_interval_ms
                ),
            )
        return Steps(group, limits, self.topics, topic_patterns.check)

    def want_configs(self) -> None:
        """Has the groups' properties read, when the first group needs them."""
        if not self.configs.wanted and self._nursery is not None:
            self.configs.wanted = True
            self._nursery.start_soon(self.configs.load)

    def consumer_heartbeat(
        self,
        group_id: str,
        version: int,
        request: Heartbeat,
        ticket: Waiting,
        may_describe: MayDescribe,
    ) -> None:
        """Takes a member's heartbeat; raises ApiError.  Of the topics that match a regular
        expression, those count that the member `may_describe`."""
        if not self.has_consumer_protocol:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "a registered broker lacks the consumer protocol; use group.protocol=classic",
            )
        if not group_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty; set group.id")
        check(request, version, self.consumer_limits.assignors)
        self.want_configs()
        shard = self._named(group_id)
        group = shard.groups.get(group_id)
        if group is None and request.epoch != 0:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
        if group is None:
            group = shard.new_group(group_id)
        try:
            wanted = self._beat(shard, group, request, ticket)
            if wanted and group.consumer is not None and not group.consumer.is_resolving:
                group.consumer.is_resolving = True
                assert self._nursery is not None
                self._nursery.start_soon(self._resolve, shard, group, wanted, may_describe)
        finally:
            shard.drop_if_unused(group)

    def _beat(
        self, shard: GroupShard, group: Group, request: Heartbeat, ticket: Waiting
    ) -> tuple[str, ...]:
        """Returns the regular expressions whose topics must be looked up."""
        before, first = group.consumer, self._of_classic(group, request)
        consumer = before or ConsumerGroup(group.group_id)
        for record in first:
            if isinstance(record, CONSUMER_RECORDS):
                consumer.apply(record)
        steps = self.consumer_steps(consumer)
        shown = consumer.state
        now_ms = monotonic_ms()
        step = steps.leave(request) if request.leaves else steps.heartbeat(request, now_ms)
        self._take(shard, group, step, ticket, first)
        if group.consumer is not None and before is None:
            group.consumer.seen = consumer.seen
            if first:
                log.info("group %s: takes the consumer protocol", group.group_id)
        if group.consumer is not None:
            self._log_consumers(shard, group.consumer, shown)
        return step.resolve

    async def _resolve(
        self, shard: GroupShard, group: Group, regexes: tuple[str, ...], may_describe: MayDescribe
    ) -> None:
        """Looks up the topics that a group's regular expressions match."""
        version, consumer = self.topics.version, group.consumer
        assert consumer is not None
        try:
            found = await topic_patterns.matches(
                regexes, self.topics.names(), may_describe, trio.lowlevel.checkpoint
            )
            if not shard.leads or group.consumer is not consumer:
                return
            consumer.refreshed_ms = monotonic_ms()
            before, now = consumer.state, self._wall_ms()
            resolved = {r: Resolved(topics, version, now) for r, topics in found.items()}
            self._take(shard, group, self.consumer_steps(consumer).resolved(resolved))
            self._log_consumers(shard, consumer, before)
        except Exception:  # the group goes on with what it knew
            log.exception("group %s: its regular expressions were not resolved", group.group_id)
        finally:
            consumer.is_resolving = False

    def _of_classic(self, group: Group, request: Heartbeat) -> tuple[GroupLogRecord, ...]:
        """The records that end a group of the classic protocol, and take its members over; raises
        ApiError."""
        if group.consumer is not None:
            return ()
        if group.state is State.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if request.epoch != 0:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id} is not a consumer group"
            )
        if not group.is_empty:
            return moves.to_consumers(group, self.consumer_limits, self.topics)
        ends = group.generation > 0 or group.pending_members
        return (GroupRecord(group.group_id, None),) if ends else ()

    def _take(
        self,
        shard: GroupShard,
        group: Group,
        step: Step,
        ticket: Waiting | None = None,
        first: tuple[GroupLogRecord, ...] = (),
        answer: Callable[[ErrorCode], object] | None = None,
    ) -> bool:
        """Carries out a step; `first` are records before its own.  `answer` makes the ticket's
        answer from the error of the write, where that is not the step's.

        Returns whether the records could be appended.  If not, no timer stops, as what it watches
        for has not come; the end of a member is tried again.
        """
        refused = False

        def then(error: ErrorCode) -> Outcome:
            nonlocal refused
            refused = error is not ErrorCode.NONE
            if ticket is None:
                return Outcome()
            code = STORE_ERRORS.get(error, error)
            if answer is not None:
                return Outcome(answers=[(ticket, answer(code))])
            return Outcome(answers=[(ticket, Beat(code) if code else step.answer)])

        if step.rebalances:
            self.rebalances.record(monotonic_ms())
        write = Write((*first, *step.records), then)
        if first:
            write = replace(write, at_once=lambda: moves.became_consumers(group))
        elif step.becomes_classic is not None:
            write = self._classic_again(group, step.becomes_classic, then)
        self._apply(shard, group, Outcome(writes=[write]))
        timers = dict(step.timers)
        if refused:
            ends = [key for key, delay in timers.items() if delay is None]
            timers.update({key: RETRY_MS for key in ends if key[0] == MEMBER_SESSION})
            timers = {key: delay for key, delay in timers.items() if delay is not None}
        self._apply(shard, group, Outcome(timers=timers))
        return not refused

    def _classic_again(
        self, group: Group, change: BecomesClassic, then: Callable[[ErrorCode], Outcome]
    ) -> Write:
        """The write by which a consumer group becomes a classic one."""
        consumer = group.consumer
        assert consumer is not None
        moved, records = moves.to_classic(consumer, change, self.topics, self._wall_ms())
        stopped = moves.timers_of_consumers(consumer)

        def at_once() -> Outcome:
            log.info("group %s: takes the classic protocol", group.group_id)
            group.become_classic(moved)
            out = self._steps(group).became_classic(rebalances=change.rebalances)
            out.timers = {**stopped.timers, **out.timers}
            return out

        return Write(records, then, at_once=at_once)

    def is_of_consumers(self, group_id: str) -> bool:
        """Whether the group has the consumer protocol; raises ApiError."""
        group = self._named(group_id).groups.get(group_id)
        return group is not None and group.consumer is not None

    def consumers_leave(
        self, group_id: str, leaving: Iterable[tuple[str, str | None]], ticket: Waiting
    ) -> None:
        """Takes a LeaveGroup request; the answer is an error for each member, or one for all."""
        shard = self._named(group_id)
        group = shard.groups[group_id]
        consumer = group.consumer
        assert consumer is not None
        before = consumer.state
        codes, step = self.consumer_steps(consumer).leave_all(leaving)
        self._take(shard, group, step, ticket, answer=lambda code: code or codes)
        self._log_consumers(shard, consumer, before)

    # ---------------------------------------------------------------- classic members

    def classic_join(self, shard: GroupShard, group: Group, request: Join, ticket: Waiting) -> None:
        """Takes a JoinGroup to a consumer group with members."""
        consumer = group.consumer
        assert consumer is not None
        before = consumer.state
        steps = ClassicSteps(self.consumer_steps(consumer))
        try:
            step, joined = steps.join(request, monotonic_ms())
        except ApiError as e:
            self.answer(ticket, Joined(e.code, ""))
            return
        self._take(
            shard, group, step, ticket, answer=lambda code: Joined(code, "") if code else joined
        )
        self._log_consumers(shard, consumer, before)

    def classic_sync(self, shard: GroupShard, group: Group, request: Sync, ticket: Waiting) -> None:
        """Takes a SyncGroup to a consumer group; raises ApiError."""
        assert group.consumer is not None
        step, synced = ClassicSteps(self.consumer_steps(group.consumer)).sync(request)
        self._take(shard, group, step, ticket, answer=lambda code: Synced(code) if code else synced)

    def classic_heartbeat(
        self,
        shard: GroupShard,
        group: Group,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode:
        """Takes a Heartbeat to a consumer group; raises ApiError."""
        assert group.consumer is not None
        steps = ClassicSteps(self.consumer_steps(group.consumer))
        step, code = steps.heartbeat(member_id, instance_id, generation)
        self._apply(shard, group, Outcome(timers=dict(step.timers)))
        return code

    # ---------------------------------------------------------------- times

    def consumer_due(self, shard: GroupShard, group: Group, kind: str, member_id: str) -> None:
        """Ends a member's session, or its time to give up partitions."""
        if group.consumer is None:
            return
        consumer, before = group.consumer, group.consumer.state
        step = self.consumer_steps(consumer).timed_out(kind, member_id)
        if step.records or step.becomes_classic is not None:
            log.info("group %s: member %s %s", group.group_id, member_id, _WHY[kind])
            if not self._take(shard, group, step):
                again = Outcome(timers={(kind, member_id): RETRY_MS})
                self._apply(shard, group, again)
            self._log_consumers(shard, consumer, before)

    def consumers_loaded(self, shard: GroupShard, group: Group) -> None:
        assert group.consumer is not None
        self.want_configs()
        self._take(shard, group, self.consumer_steps(group.consumer).loaded())

    def end_of_consumers(self, group: Group) -> Outcome:
        """Turns an empty group of the consumer protocol into one of the classic one."""
        assert group.consumer is not None
        records = tuple(group.consumer.tombstones())
        return Outcome(writes=[Write(records, lambda _: Outcome())])

    def _log_consumers(
        self, shard: GroupShard, group: ConsumerGroup, before: ConsumerState
    ) -> None:
        if group.state is not before:
            log.info(
                "group %s: %s, epoch %d, %d members (%s)",
                group.group_id, group.state.value, group.epoch, len(group.members),
                shard.partition.tp,
            )  # fmt: skip


def with_id(request: Heartbeat, new_id: str) -> Heartbeat:
    """The request with a member id, where it has none."""
    return request if request.member_id else replace(request, member_id=new_id)
