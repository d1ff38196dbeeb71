"""The protocol on one consumer group: heartbeats, by which members join and leave, and time-outs.

A heartbeat does four things, each where it is needed: it updates the member's subscription; it
raises the group epoch, because a subscription or a topic has changed; it computes new targets for
all members; and it takes the member one step towards its own.  What changes is in the records of
the `Step`.

A member that repeats a request whose answer was lost comes with its previous epoch.  It is taken if
it has no partition that it was not assigned, as another epoch means that another process, or a
member that was thought dead, holds on to partitions.

Source: GroupMetadataManager, GroupCoordinatorService of Kafka's group coordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from highwater.broker.coordinator.group.consumer import assignors
from highwater.broker.coordinator.group.consumer import subscribed_topics as topic_facts
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.heartbeats import Beat, Heartbeat, Limits, updated
from highwater.broker.coordinator.group.consumer.members import (
    AWAY,
    Current,
    Member,
    MemberState,
    Partitions,
    Resolved,
    Subscription,
    contains,
)
from highwater.broker.coordinator.group.consumer.migration import (
    BecomesClassic,
    may_become_classic,
)
from highwater.broker.coordinator.group.consumer.reconciliation import next_step
from highwater.broker.coordinator.group.consumer.records import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topic, Topics
from highwater.kafka.errors import ApiError, ErrorCode

MEMBER_SESSION, REVOCATION = "member session", "revocation"
JOINING, SYNCING = "joining", "syncing"
MEMBER_TIMERS = (MEMBER_SESSION, REVOCATION, JOINING, SYNCING)
"""The kinds of a member's timers; the last two are for members of the classic protocol, which must
join again when they are told to, and sync when they have joined."""
REGEX_PAUSE_MS = 10_000
"""The least time between two looks at all topics for a group's regular expressions."""


@dataclass(slots=True)
class Step:
    """What a step asks for.  A timer's value is its delay in ms; None stops it."""

    records: list[ConsumerRecord] = field(default_factory=list)
    answer: Beat | None = None
    timers: dict[tuple[str, str], int | None] = field(default_factory=dict)
    resolve: tuple[str, ...] = ()
    """Regular expressions whose topics must be looked up (`resolved` takes them)."""
    becomes_classic: BecomesClassic | None = None
    """Set where the group becomes a classic one, in place of the records."""
    rebalances: bool = False
    """Whether the group epoch has risen because of subscriptions or topics."""


class Steps:
    """The steps on one group.  `check_regex` raises ApiError for a wrong regular expression."""

    def __init__(
        self,
        group: ConsumerGroup,
        limits: Limits,
        topics: Topics,
        check_regex: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.group = group
        self.limits = limits
        self.topics = topics
        self.check_regex = check_regex

    # ---------------------------------------------------------------- heartbeat

    def heartbeat(self, request: Heartbeat, now_ms: float) -> Step:
        """The step of a member that stays, or joins; raises ApiError.  `now_ms` is monotonic."""
        step = Step()
        self.check_room(request.member_id)
        member = self._member(request, step)
        told = updated(member.subscription, request)
        current = self.advance(member, told, request.owned, step, now_ms)
        step.timers[MEMBER_SESSION, member.member_id] = self.limits.session_timeout_ms
        told_all = request.epoch == 0 or request.is_full
        shown = told_all or current.assigned != member.current.assigned
        step.answer = Beat(
            ErrorCode.NONE,
            member.member_id,
            current.epoch,
            self.limits.heartbeat_interval_ms,
            current.assigned if shown else None,
        )
        return step

    def advance(
        self,
        member: Member,
        told: Subscription,
        owned: Partitions | None,
        step: Step,
        now_ms: float,
    ) -> Current:
        """Notes what a member has told, renews the targets where that is needed, and takes the
        member one step towards its own."""
        group = self.group
        changed = self._subscribe(member, told, step)
        newer = replace(member, subscription=told)
        names, regexes = self._subscriptions(newer)
        if group.epoch == 0 or changed is not None or self._is_outdated(names):
            epoch = self._raise_epoch(step, names, at_least=changed is True or group.epoch == 0)
        else:
            epoch = group.epoch
        if epoch > group.target_epoch:
            target = epoch, self._compute(newer, epoch, names, step)
        else:
            target = group.target_epoch, group.target_of(member.member_id, told.instance_id)
        step.resolve = self._to_resolve(regexes, now_ms)
        return self._reconcile(newer, target, owned, changed is not None, step)

    def check_room(self, member_id: str) -> None:
        if len(self.group.members) >= self.limits.max_size and member_id not in self.group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has group.consumer.max.size ({self.limits.max_size}) members",
            )

    def _member(self, request: Heartbeat, step: Step) -> Member:
        """The member that sends the request, as it is so far; raises ApiError."""
        group, member_id = self.group, request.member_id
        if request.instance_id is not None:
            return self._static_member(request, request.instance_id, step)
        member = group.members.get(member_id)
        if member is None:
            if request.epoch != 0:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
            return Member(member_id)
        _check_epoch(member, request)
        return member

    def _static_member(self, request: Heartbeat, instance_id: str, step: Step) -> Member:
        group, member_id = self.group, request.member_id
        holder = group.static_member(instance_id)
        if request.epoch != 0:
            holder = self.holder(member_id, instance_id)
            _check_epoch(holder, request)
            return holder
        if holder is None:
            return group.members.get(member_id) or Member(member_id)
        if holder.subscription.classic is None and holder.current.epoch != AWAY:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"{holder.member_id} has the instance id {instance_id}; it must leave first",
            )
        return self.take_over(holder, member_id, step)

    def take_over(self, holder: Member, member_id: str, step: Step) -> Member:
        """Gives the place of a static member to a new process of it."""
        group = self.group
        current = replace(holder.current, epoch=0, previous_epoch=0)
        member = Member(member_id, holder.subscription, current)
        step.records += group.member_tombstones(holder.member_id)
        step.records += (
            MemberRecord(group.group_id, member_id, member.subscription),
            TargetRecord(group.group_id, member_id, group.target_of(holder.member_id)),
            CurrentRecord(group.group_id, member_id, current),
        )
        return member

    def holder(self, member_id: str, instance_id: str) -> Member:
        """The member that has the instance id; raises ApiError if it is another one."""
        holder = self.group.static_member(instance_id)
        if holder is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the instance id {instance_id} is unknown")
        if holder.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"the instance id {instance_id} was taken over by {holder.member_id}",
            )
        return holder

    # ---------------------------------------------------------------- subscriptions

    def _subscribe(self, member: Member, told: Subscription, step: Step) -> bool | None:
        """Notes what the member has told.  None: its topics are as before; True: they are others;
        False: those of its regular expression have yet to be looked up.
        """
        group, before = self.group, member.subscription
        if told == before and member.member_id in group.members:
            return None
        if told != before or not step.records:
            step.records.append(MemberRecord(group.group_id, member.member_id, told))
        found: bool | None = None
        if told.regex != before.regex:
            if told.regex and group.regexes[told.regex] == 0:
                self.check_regex(told.regex)
            if group.regexes[before.regex] == 1:
                step.records.append(RegexRecord(group.group_id, before.regex, None))
            found = not told.regex or (
                told.regex in group.resolved and group.regexes[told.regex] > 0
            )
        return True if told.topics != before.topics else found

    def _subscriptions(
        self, newer: Member | None, *, without: Collection[str] = ()
    ) -> tuple[dict[str, Topic], dict[str, None]]:
        """The topics that the group has with this member's new subscription, and its regular
        expressions; `without` names members that leave."""
        group = self.group
        changes = [(group.members[member_id].subscription, -1) for member_id in without]
        if newer is not None:
            before = group.members.get(newer.member_id)
            if before is None and newer.subscription.instance_id is not None:
                before = group.static_member(newer.subscription.instance_id)
            changes += [] if before is None else [(before.subscription, -1)]
            changes.append((newer.subscription, 1))
            if before is not None and before.subscription == newer.subscription:
                changes.clear()
        names, regexes = group.topics, group.regexes
        if changes:
            names, regexes = names.copy(), regexes.copy()
        for subscription, by in changes:
            names.update(dict.fromkeys(subscription.topics, by))
            regexes.update({subscription.regex: by} if subscription.regex else {})
        used = {regex: None for regex, count in regexes.items() if count > 0}
        wanted = {name for name, count in names.items() if count > 0}
        for regex in used:
            if regex in group.resolved:
                wanted.update(group.resolved[regex].topics)
        return topic_facts.known(wanted, self.topics), used

    def _is_outdated(self, names: dict[str, Topic]) -> bool:
        """Whether the topics, or what is known of them, have changed since the latest look."""
        return self.group.seen != (self.group.epoch, names)

    def _raise_epoch(self, step: Step, names: dict[str, Topic], *, at_least: bool) -> int:
        """The group epoch: one more if `at_least`, or if the topics' metadata is new."""
        group = self.group
        found = topic_facts.group_hash(names, self.topics)
        epoch = group.epoch
        if at_least or found != group.metadata_hash:
            epoch += 1
            step.rebalances = True
            step.records.append(EpochRecord(group.group_id, GroupEpoch(epoch, found)))
        if group.has_topics_record:
            step.records.append(TopicsRecord(group.group_id))
        group.seen = epoch, names
        return epoch

    # ---------------------------------------------------------------- assignment

    def assignor(self, newer: Member | None = None) -> str:
        """The name of the assignor that most members ask for."""
        votes = self.group.assignors
        if newer is not None:
            before = self.group.members.get(newer.member_id)
            votes = votes.copy()
            if before is not None and before.subscription.assignor is not None:
                votes[before.subscription.assignor] -= 1
            if newer.subscription.assignor is not None:
                votes[newer.subscription.assignor] += 1
        asked = {name: count for name, count in votes.items() if count > 0}
        return assignors.preferred(asked, self.limits.assignors[0])

    def _compute(
        self, newer: Member, epoch: int, names: dict[str, Topic], step: Step
    ) -> Partitions:
        """Computes the targets of all members for this epoch, and returns this member's."""
        group = self.group
        members = {**group.members, newer.member_id: newer}
        instance_id = newer.subscription.instance_id
        replaced = None if instance_id is None else group.static_members.get(instance_id)
        if replaced is not None and replaced != newer.member_id:
            del members[replaced]
        specs = {
            member_id: assignors.Subscribed(
                member.subscription.instance_id,
                self._topic_ids(member.subscription, names),
                group.target_of(member_id, instance_id if member is newer else None),
            )
            for member_id, member in sorted(members.items())
        }
        counts = {topic.topic_id: topic.partitions for topic in names.values()}
        assign = assignors.ASSIGNORS.get(self.assignor(newer), assignors.uniform)
        targets = assign(specs, counts)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                step.records.append(TargetRecord(group.group_id, member_id, target))
        step.records.append(TargetEpochRecord(group.group_id, epoch))
        return targets[newer.member_id]

    def _topic_ids(self, told: Subscription, names: dict[str, Topic]) -> frozenset[bytes]:
        """The ids of the topics that a subscription names, of those that exist."""
        resolved = self.group.resolved.get(told.regex)
        asked = told.topics if resolved is None else (*told.topics, *resolved.topics)
        return frozenset(names[name].topic_id for name in asked if name in names)

    def _reconcile(
        self,
        member: Member,
        target: tuple[int, Partitions],
        owned: Partitions | None,
        changed: bool,
        step: Step,
    ) -> Current:
        """Takes the member one step towards its target."""
        group = self.group
        if not changed and member.current.has_come_to(target[0]):
            return member.current
        subscribed = None
        if changed:
            names, _ = self._subscriptions(member)
            subscribed = self._topic_ids(member.subscription, names)
        current = next_step(member.current, target, owned, group.is_free, subscribed)
        if current != member.current:
            step.records.append(CurrentRecord(group.group_id, member.member_id, current))
            revokes = current.state is MemberState.UNREVOKED_PARTITIONS
            timeout_ms = member.subscription.rebalance_timeout_ms
            if member.subscription.classic is not None:
                revokes = False  # its time to join again is the limit
            step.timers[REVOCATION, member.member_id] = timeout_ms if revokes else None
        return current

    # ---------------------------------------------------------------- leaving

    def leave(self, request: Heartbeat) -> Step:
        """The step of a member that leaves; raises ApiError."""
        group, member_id = self.group, request.member_id
        answer = Beat(ErrorCode.NONE, member_id, request.epoch)
        if request.instance_id is None:
            if member_id not in group.members:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
        else:
            holder = self.holder(member_id, request.instance_id)
            if request.epoch == AWAY:
                away = replace(holder.current, epoch=AWAY, revoking={})
                record = CurrentRecord(group.group_id, member_id, away)
                return Step([record], answer)
        step = self.removed([member_id])
        step.answer = answer
        return step

    def leave_all(self, leaving: Iterable[tuple[str, str | None]]) -> tuple[list[ErrorCode], Step]:
        """The step in which the members of a LeaveGroup request leave, with each one's error.

        A static member may be named by its group.instance.id alone.
        """
        codes: list[ErrorCode] = []
        found: dict[str, None] = {}
        for member_id, instance_id in leaving:
            try:
                if instance_id is not None:
                    holder = self.group.static_member(instance_id)
                    named = holder.member_id if holder is not None and not member_id else member_id
                    member_id = self.holder(named, instance_id).member_id
                elif member_id not in self.group.members:
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
                found[member_id] = None
                codes.append(ErrorCode.NONE)
            except ApiError as e:
                codes.append(e.code)
        return codes, self.removed(list(found)) if found else Step()

    def removed(self, members: Collection[str]) -> Step:
        """The step in which members are out: they have left, or were silent for too long."""
        group, step, limits = self.group, Step(), self.limits
        for member_id in members:
            step.timers.update(dict.fromkeys(timers_of(member_id)))
        if may_become_classic(group, members, limits.policy, limits.classic_max_size):
            step.becomes_classic = BecomesClassic(tuple(members))
            return step
        for member_id in members:
            step.records += group.member_tombstones(member_id)
        told = (group.members[member_id].subscription.regex for member_id in members)
        for regex, count in Counter(told).items():
            if regex in group.resolved and group.regexes[regex] == count:
                step.records.append(RegexRecord(group.group_id, regex, None))
        names, _ = self._subscriptions(None, without=members)
        found = topic_facts.group_hash(names, self.topics)
        step.records.append(EpochRecord(group.group_id, GroupEpoch(group.epoch + 1, found)))
        return step

    def timed_out(self, kind: str, member_id: str) -> Step:
        """The step when a member's timer is due."""
        member = self.group.members.get(member_id)
        if member is None:
            return Step()
        revokes = member.current.state is MemberState.UNREVOKED_PARTITIONS
        is_here = member.current.epoch != AWAY
        is_classic = member.subscription.classic is not None
        if kind == REVOCATION and (is_classic or not (revokes and is_here)):
            return Step()
        if kind in (JOINING, SYNCING) and not is_classic:
            return Step()
        return self.removed([member_id])

    def loaded(self) -> Step:
        """The step when this broker begins to coordinate the group: all times begin again."""
        step = Step()
        for member_id, member in self.group.members.items():
            classic = member.subscription.classic
            if classic is not None:
                step.timers[MEMBER_SESSION, member_id] = classic.session_timeout_ms
                continue
            step.timers[MEMBER_SESSION, member_id] = self.limits.session_timeout_ms
            if member.current.state is MemberState.UNREVOKED_PARTITIONS:
                timeout_ms = member.subscription.rebalance_timeout_ms
                step.timers[REVOCATION, member_id] = timeout_ms
        return step

    # ---------------------------------------------------------------- regular expressions

    def _to_resolve(self, used: dict[str, None], now_ms: float) -> tuple[str, ...]:
        """The regular expressions whose topics must be looked up now, if any."""
        group = self.group
        last = group.refreshed_ms
        if not used or (last is not None and now_ms - last <= REGEX_PAUSE_MS):
            return ()
        news = any(
            regex not in group.resolved or group.resolved[regex].version != self.topics.version
            for regex in used
        )
        if news or last is None or now_ms - last > self.limits.regex_refresh_ms:
            return tuple(used)
        return ()

    def resolved(self, found: dict[str, Resolved]) -> Step:
        """Takes the topics that regular expressions match, of those that are still used."""
        group, step = self.group, Step()
        wanted = dict.fromkeys(group.topics)
        for regex in group.regexes:
            matched = found.get(regex) or group.resolved.get(regex)
            wanted.update(dict.fromkeys(matched.topics if matched is not None else ()))
        changed = False
        for regex, matched in found.items():
            if group.regexes[regex] > 0:
                before = group.resolved.get(regex)
                changed = changed or before is None or before.topics != matched.topics
                step.records.append(RegexRecord(group.group_id, regex, matched))
        names = topic_facts.known(wanted, self.topics)
        metadata_hash = topic_facts.group_hash(names, self.topics)
        if changed or metadata_hash != group.metadata_hash:
            step.rebalances = True
            epoch = GroupEpoch(group.epoch + 1, metadata_hash)
            step.records.append(EpochRecord(group.group_id, epoch))
        return step


def timers_of(member_id: str) -> tuple[tuple[str, str], ...]:
    return tuple((kind, member_id) for kind in MEMBER_TIMERS)


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """Raises FENCED_MEMBER_EPOCH for a member that is not where it says."""
    current = member.current
    if request.epoch in (0, current.epoch):
        return
    repeated = request.epoch == current.previous_epoch
    if request.epoch < current.epoch and repeated and contains(current.assigned, request.owned):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"epoch {request.epoch} is not the member's, which is {current.epoch}; "
        "give up all partitions and join again",
    )
