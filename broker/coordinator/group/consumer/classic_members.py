"""Members of a consumer group that still use the classic protocol: JoinGroup, SyncGroup, Heartbeat.

Such a member is no leader and assigns nothing.  JoinGroup takes the place of a heartbeat: it says
what the member has subscribed to and what it has, and takes it one step towards its target.  The
generation in the answer is the member's epoch, and SyncGroup gives the partitions of that step.  A
heartbeat says only whether the member must join again: to take the next step.

    told to join again   the group epoch has risen; there is something to give up; what it waits
                         for has become free
    JOINING              the time until it has joined again, from that heartbeat on
    SYNCING              the time until it has synced, from that JoinGroup on

Here a static member that comes without its former regular expression has none, where Apache Kafka
keeps it: classic members refuse topics to which they have not subscribed.

Source: GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup of Kafka's group coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from highwater.broker.coordinator.group.consumer import embedded
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.consumer_steps import (
    JOINING,
    MEMBER_SESSION,
    SYNCING,
    Step,
    Steps,
)
from highwater.broker.coordinator.group.consumer.embedded import CONSUMER, Subscribed
from highwater.broker.coordinator.group.consumer.members import (
    Classic,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from highwater.broker.coordinator.group.consumer.migration import (
    BecomesClassic,
    may_become_classic,
)
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topics
from highwater.broker.coordinator.group.protocol import Join, Joined, Sync, Synced
from highwater.kafka.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class _Place:
    """The member that joins, as it is so far, and the static member whose place it takes."""

    member: Member
    before: Member | None = None


class ClassicSteps:
    """The steps of classic members; `steps` are those of their group."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.group = steps.group

    # ---------------------------------------------------------------- join

    def join(self, request: Join, now_ms: float) -> tuple[Step, Joined]:
        """Takes a JoinGroup; raises ApiError.  `now_ms` is monotonic."""
        group, step = self.group, Step()
        member_id = request.member_id or request.new_id
        self.steps.check_room(member_id)
        if not _supports(group, request):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.needs_known_id and not request.member_id:
            return step, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        subscribed = _subscribed(request.protocols)
        place = self._place(request, member_id, step)
        told = _told(place.member.subscription, request, subscribed)
        owned = with_ids(subscribed.owned, self.steps.topics)
        current = self.steps.advance(place.member, told, owned, step, now_ms)
        group.told_to_join.pop(member_id, None)
        step.timers[JOINING, member_id] = None
        epoch = current.epoch
        if place.before is not None and self._ends(place.before):
            newer = replace(place.member, subscription=told, current=current)
            step = self._classic_again(place.before, newer)
            epoch = group.epoch
        else:
            step.timers[MEMBER_SESSION, member_id] = request.session_timeout_ms
            step.timers[SYNCING, member_id] = told.rebalance_timeout_ms
        name = request.protocols[0][0]
        return step, Joined(ErrorCode.NONE, member_id, epoch, CONSUMER, name)

    def _place(self, request: Join, member_id: str, step: Step) -> _Place:
        """Raises ApiError."""
        known = self.group.members.get(member_id) or Member(member_id)
        if request.instance_id is None:
            return _Place(known)
        if request.member_id:
            return _Place(self.steps.holder(member_id, request.instance_id))
        holder = self.group.static_member(request.instance_id)
        if holder is None:
            return _Place(known)
        return _Place(self.steps.take_over(holder, member_id, step), holder)

    def _ends(self, replaced: Member) -> bool:
        """Whether the group has no member of the consumer protocol without the replaced one."""
        limits = self.steps.limits
        return replaced.subscription.classic is None and may_become_classic(
            self.group, (replaced.member_id,), limits.policy, limits.classic_max_size, joining=1
        )

    def _classic_again(self, replaced: Member, newer: Member) -> Step:
        """The step in which the group becomes classic, as its last other member has come back so.

        All may keep what they have if each has come to its target, and that stays as it is.
        """
        group, before = self.group, replaced.subscription
        others = [m for m in group.members.values() if m is not replaced]
        rebalances = (
            (newer.subscription.topics, newer.subscription.regex) != (before.topics, before.regex)
            or group.epoch > group.target_epoch
            or not all(member.current.has_come_to(group.target_epoch) for member in others)
        )
        return Step(becomes_classic=BecomesClassic((replaced.member_id,), newer, rebalances))

    # ---------------------------------------------------------------- sync, heartbeat

    def sync(self, request: Sync) -> tuple[Step, Synced]:
        """Takes a SyncGroup; raises ApiError."""
        step = Step()
        member, classic = self._known(request.member_id, request.instance_id, request.generation)
        if request.protocol_type not in (None, CONSUMER):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol not in (None, classic.protocol):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        current = member.current
        if (
            self.group.epoch > current.epoch
            and current.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._tell_to_join(member, step)
            return step, Synced(ErrorCode.REBALANCE_IN_PROGRESS)
        step.timers[SYNCING, member.member_id] = None
        step.timers[MEMBER_SESSION, member.member_id] = classic.session_timeout_ms
        version = embedded.version_of(classic.protocols[0][1])
        assignment = encode(current.assigned, self.steps.topics, version)
        return step, Synced(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[Step, ErrorCode]:
        """Takes a Heartbeat; raises ApiError."""
        group, step = self.group, Step()
        member, classic = self._known(member_id, instance_id, generation)
        step.timers[MEMBER_SESSION, member_id] = classic.session_timeout_ms
        state = member.current.state
        if (
            member.current.epoch < group.epoch
            or state is MemberState.UNREVOKED_PARTITIONS
            or (state is MemberState.UNRELEASED_PARTITIONS and not self._waits(member))
        ):
            self._tell_to_join(member, step)
            return step, ErrorCode.REBALANCE_IN_PROGRESS
        return step, ErrorCode.NONE

    def _known(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[Member, Classic]:
        """The member that sends the request; raises ApiError."""
        member = self.group.members.get(member_id)
        if instance_id is not None:
            member = self.steps.holder(member_id, instance_id)
        classic = None if member is None else member.subscription.classic
        if member is None or classic is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != member.current.epoch:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return member, classic

    def _tell_to_join(self, member: Member, step: Step) -> None:
        if member.member_id not in self.group.told_to_join:
            self.group.told_to_join[member.member_id] = None
            step.timers[JOINING, member.member_id] = member.subscription.rebalance_timeout_ms

    def _waits(self, member: Member) -> bool:
        """Whether another member has yet to give up a partition of this one's target."""
        return any(
            not self.group.is_free(topic_id, number)
            for topic_id, numbers in self.group.target_of(member.member_id).items()
            for number in numbers - member.current.assigned.get(topic_id, frozenset())
        )


def with_ids(named: embedded.Named, topics: Topics) -> Partitions:
    """The partitions of topics that exist, by their ids."""
    found = ((topics.topic(name), numbers) for name, numbers in named.items())
    return {topic.topic_id: numbers for topic, numbers in found if topic is not None}


def encode(partitions: Partitions, topics: Topics, version: int) -> bytes:
    """The assignment of these partitions, of topics that exist, as classic consumers read it."""
    named = ((topics.name_of(topic_id), numbers) for topic_id, numbers in partitions.items())
    return embedded.encode_assignment(
        sorted((name, numbers) for name, numbers in named if name is not None), version
    )


def _supports(group: ConsumerGroup, request: Join) -> bool:
    """Whether all classic members support one of the protocols."""
    counts = group.classic_protocols
    return request.protocol_type == CONSUMER and any(
        counts[name] == group.classic_members for name, _ in request.protocols
    )


def _subscribed(protocols: tuple[tuple[str, bytes], ...]) -> Subscribed:
    """What a member has subscribed to: the same by each protocol.  Raises ApiError."""
    try:
        return embedded.subscription(protocols[0][1])
    except embedded.MalformedError as e:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)) from e


def _told(before: Subscription, request: Join, subscribed: Subscribed) -> Subscription:
    return Subscription(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if subscribed.rack_id is None else subscribed.rack_id,
        request.client_id,
        request.client_host,
        tuple(sorted(set(subscribed.topics))),
        "",
        before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        before.assignor,
        Classic(request.session_timeout_ms, request.protocols),
    )
