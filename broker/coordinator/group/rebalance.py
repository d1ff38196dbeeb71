"""The rebalance protocol on one group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and time-outs.

A rebalance has two barriers.  At the first, members wait in JoinGroup until all have joined, or
until the largest of their rebalance time-outs has passed; a member that has not joined by then is
out.  Then a new generation begins: its leader gets all subscriptions, and assigns.  At the second
barrier the members wait in SyncGroup for their assignments, and get them once they are *stored*: no
member acts on an assignment that a new coordinator would not know.

The first rebalance of an empty group is held back for group.initial.rebalance.delay.ms, and again
as long as new members arrive, up to the rebalance time-out.

A dynamic member that joins for the first time gets an id and must come again with it
(MEMBER_ID_REQUIRED, KIP-394), so that a client that gives up leaves no member behind.  A static
member (group.instance.id, KIP-345) takes its old place under a new member id, without a rebalance
if the protocol stays the same; a process that still uses the old id is fenced.

Source: kafka.coordinator.group.GroupCoordinator.
"""

from __future__ import annotations

from dataclasses import replace

from highwater.broker.coordinator.group.group import (
    REBALANCE,
    SESSION,
    SYNC,
    Group,
    Member,
    Outcome,
    State,
    Ticket,
    Write,
)
from highwater.broker.coordinator.group.moves import refuse_all
from highwater.broker.coordinator.group.protocol import Join, Joined, Limits, Sync, Synced
from highwater.kafka.errors import ErrorCode

_STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error for members whose generation could not be stored, by the error of the write."""


class Rebalancing:
    """The steps on one group.  `now_ms` is the wall clock, used for stored times."""

    def __init__(self, group: Group, limits: Limits) -> None:
        self.group = group
        self.limits = limits

    # ---------------------------------------------------------------- join

    def join(self, request: Join, ticket: Ticket, now_ms: int) -> Outcome:
        out = Outcome()
        group = self.group
        if group.state is State.DEAD:
            _refuse(out, ticket, request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return out
        if not self._has_room(request.member_id):
            self._remove(group.members.get(request.member_id), out)
            _refuse(out, ticket, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, request.protocols):
            _refuse(out, ticket, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._join_newcomer(request, ticket, out, now_ms)
        elif request.member_id in group.pending_members:
            self._add(request, request.member_id, ticket, out)
        else:
            self._join_known(request, ticket, out)
        self._maybe_complete(out, now_ms)
        return out

    def _has_room(self, member_id: str) -> bool:
        group, limit = self.group, self.limits.max_size
        match group.state:
            case State.EMPTY | State.DEAD:
                return True
            case State.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                waits = member is not None and member.joining is not None
                return waits or group.waiting_to_join < limit
            case _:
                return member_id in group.members or len(group.members) < limit

    def _join_newcomer(self, request: Join, ticket: Ticket, out: Outcome, now_ms: int) -> None:
        group = self.group
        if group.has_static(request.instance_id):
            self._replace_static(request, ticket, out, now_ms)
        elif request.needs_known_id:
            group.pending_members[request.new_id] = None
            out.timers[SESSION, request.new_id] = request.session_timeout_ms
            _refuse(out, ticket, request.new_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(request, request.new_id, ticket, out)

    def _join_known(self, request: Join, ticket: Ticket, out: Outcome) -> None:
        group, member_id = self.group, request.member_id
        member = group.members.get(member_id)
        if group.is_fenced(member_id, request.instance_id):
            _refuse(out, ticket, member_id, ErrorCode.FENCED_INSTANCE_ID)
        elif (
            member is None
            or group.state is State.EMPTY
            or (request.instance_id is not None and not group.has_static(request.instance_id))
        ):
            _refuse(out, ticket, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        elif group.state is State.PREPARING_REBALANCE or member.protocols != request.protocols:
            self._update(member, request, ticket, out)
        elif group.state is State.STABLE and group.leader == member_id:
            # a leader joins again when the assignment must change though no subscription did
            self._update(member, request, ticket, out)
        else:
            # its answer was lost, or it only needs to sync again
            out.answers.append((ticket, self._joined(member)))

    def _add(self, request: Join, member_id: str, ticket: Ticket, out: Outcome) -> None:
        group = self.group
        if group.state is State.PREPARING_REBALANCE and group.initial_delay_left_ms is not None:
            group.new_member_added = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.members[member_id] = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            joining=ticket,
            is_new=True,
        )
        if group.leader is None or group.leader not in group.members:
            group.leader = member_id
        if request.instance_id is not None:
            group.static_members[request.instance_id] = member_id
        group.pending_members.pop(member_id, None)
        out.timers[SESSION, member_id] = self.limits.new_member_ms
        self._prepare(out)

    def _update(self, member: Member, request: Join, ticket: Ticket, out: Outcome) -> None:
        if member.joining is not None:  # an older request of the same member no longer waits
            _refuse(out, member.joining, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        member.adopt(request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        member.joining = ticket
        self._prepare(out)

    def _replace_static(self, request: Join, ticket: Ticket, out: Outcome, now_ms: int) -> None:
        group = self.group
        assert request.instance_id is not None
        old_id, new_id = group.static_members[request.instance_id], request.new_id
        old_leader = group.leader or ""
        member = group.members[old_id]
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        self._fence(member, out)
        group.rename(member, new_id)
        member.adopt(request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        out.timers[SESSION, old_id] = None
        out.timers[SESSION, new_id] = member.session_timeout_ms
        if group.state is not State.STABLE or group.select_protocol() != group.protocol:
            member.joining = ticket
            self._prepare(out)
            return
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        answer = self._joined(member)
        if request.may_skip_assignment:
            answer = replace(answer, skip_assignment=group.leader == new_id)
        else:
            # an old client must not think that it leads: its assignment would not be given out
            answer = replace(answer, leader=old_leader, members=())

        def then(error: ErrorCode) -> Outcome:
            after = Outcome()
            if error is ErrorCode.NONE:
                after.answers.append((ticket, answer))
                return after
            if error is not ErrorCode.REQUEST_TIMED_OUT and group.members.get(new_id) is member:
                # nothing was written, so a new coordinator would know the former process
                group.rename(member, old_id)
                member.adopt(*before)
                after.timers[SESSION, new_id] = None
                after.timers[SESSION, old_id] = member.session_timeout_ms
            _refuse(after, ticket, "", _STORE_ERRORS.get(error, error))
            return after

        out.writes.append(Write((group.stored(assignments, now_ms),), then))

    def _fence(self, member: Member, out: Outcome) -> None:
        if member.joining is not None:
            _refuse(out, member.joining, member.member_id, ErrorCode.FENCED_INSTANCE_ID)
        if member.syncing is not None:
            out.answers.append((member.syncing, Synced(ErrorCode.FENCED_INSTANCE_ID)))
        member.joining = member.syncing = None

    def _joined(self, member: Member) -> Joined:
        group = self.group
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if group.leader == member.member_id:
            members = tuple(
                (m.member_id, m.instance_id, m.metadata(group.protocol))
                for m in group.members.values()
            )
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader or "",
            members,
        )

    # ---------------------------------------------------------------- the first barrier

    def _prepare(self, out: Outcome) -> None:
        """Begins a rebalance, unless one is at this barrier already."""
        group = self.group
        if group.state in (State.PREPARING_REBALANCE, State.DEAD):
            return
        if group.state is State.COMPLETING_REBALANCE:
            self._end_syncs(ErrorCode.REBALANCE_IN_PROGRESS, out)
        out.timers[SYNC, ""] = None
        timeout = group.rebalance_timeout_ms
        if group.state is State.EMPTY:
            delay = self.limits.initial_delay_ms
            group.initial_delay_left_ms = max(timeout - delay, 0)
            group.new_member_added = False
            out.timers[REBALANCE, ""] = delay
        else:
            group.initial_delay_left_ms = None
            out.timers[REBALANCE, ""] = timeout
        group.state = State.PREPARING_REBALANCE

    def _maybe_complete(self, out: Outcome, now_ms: int) -> None:
        group = self.group
        if group.state is not State.PREPARING_REBALANCE:
            return
        if group.initial_delay_left_ms is not None:
            return  # only its timer ends the initial delay
        if group.all_joined:
            self._complete(out, now_ms)

    def rebalance_due(self, now_ms: int) -> Outcome:
        """Ends the first barrier: its time-out, or the initial delay, has passed."""
        out = Outcome()
        group = self.group
        if group.state is not State.PREPARING_REBALANCE:
            return out
        left = group.initial_delay_left_ms
        if left and group.new_member_added:
            delay = min(self.limits.initial_delay_ms, left)
            group.new_member_added = False
            group.initial_delay_left_ms = max(left - delay, 0)
            out.timers[REBALANCE, ""] = delay
            return out
        group.initial_delay_left_ms = None
        self._complete(out, now_ms)
        return out

    def _complete(self, out: Outcome, now_ms: int) -> None:
        """Begins the next generation, with the members that have joined and all static ones."""
        group = self.group
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self._forget(member, out)
        joined = [m.member_id for m in group.members.values() if m.joining is not None]
        if group.members and not joined:
            # only static members are left, all silent: their sessions decide
            out.timers[REBALANCE, ""] = group.rebalance_timeout_ms
            return
        out.timers[REBALANCE, ""] = None
        group.generation += 1
        if not group.members:
            group.state, group.protocol, group.leader = State.EMPTY, None, None
            out.writes.append(Write((group.stored({}, now_ms),), lambda _: Outcome()))
            return
        if group.leader not in joined:
            group.leader = joined[0]
        group.protocol = group.select_protocol()
        group.state = State.COMPLETING_REBALANCE
        group.pending_sync = dict.fromkeys(group.members)
        out.timers[SYNC, ""] = group.rebalance_timeout_ms
        for member in group.members.values():
            if member.joining is not None:
                out.answers.append((member.joining, self._joined(member)))
                member.joining = None
            member.is_new = False
            out.timers[SESSION, member.member_id] = member.session_timeout_ms

    # ---------------------------------------------------------------- the second barrier

    def sync(self, request: Sync, ticket: Ticket, now_ms: int) -> Outcome:
        out = Outcome()
        group, member_id = self.group, request.member_id
        error = self._check(member_id, request.instance_id, request.generation)
        if error is ErrorCode.NONE and (
            request.protocol_type not in (None, group.protocol_type)
            or request.protocol not in (None, group.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE and group.state is State.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            out.answers.append((ticket, Synced(error)))
            return out
        member = group.members[member_id]
        group.pending_sync.pop(member_id, None)
        if group.state is State.STABLE:
            out.answers.append((ticket, self._synced(member)))
            out.timers[SESSION, member_id] = member.session_timeout_ms
            return out
        if member.syncing is not None:
            again = Synced(ErrorCode.REBALANCE_IN_PROGRESS)
            out.answers.append((member.syncing, again))
        member.syncing = ticket
        if group.leader == member_id:
            self._store(dict(request.assignments), out, now_ms)
        return out

    def _store(self, assignments: dict[str, bytes], out: Outcome, now_ms: int) -> None:
        group, generation = self.group, self.group.generation

        def then(error: ErrorCode) -> Outcome:
            after = Outcome()
            if group.generation != generation:
                return after
            if error is ErrorCode.NONE and group.state is State.STABLE:
                self._give_out(after)
            elif error is not ErrorCode.NONE and group.state is State.COMPLETING_REBALANCE:
                self._end_syncs(_STORE_ERRORS.get(error, error), after)
                self._prepare(after)
            return after

        out.writes.append(Write((group.stored(assignments, now_ms),), then))

    def _synced(self, member: Member) -> Synced:
        group = self.group
        return Synced(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)

    def _give_out(self, out: Outcome) -> None:
        for member in self.group.members.values():
            if member.syncing is not None:
                out.answers.append((member.syncing, self._synced(member)))
                member.syncing = None
                out.timers[SESSION, member.member_id] = member.session_timeout_ms

    def _end_syncs(self, error: ErrorCode, out: Outcome) -> None:
        for member in self.group.members.values():
            member.assignment = b""
            if member.syncing is not None:
                out.answers.append((member.syncing, Synced(error)))
                member.syncing = None
                out.timers[SESSION, member.member_id] = member.session_timeout_ms

    def sync_due(self, now_ms: int) -> Outcome:
        """Removes members that joined this generation but have never sent SyncGroup."""
        out = Outcome()
        group = self.group
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return out
        silent = [group.members[m] for m in group.pending_sync if m in group.members]
        if silent:
            for member in silent:
                self._forget(member, out)
            self._prepare(out)
            self._maybe_complete(out, now_ms)
        return out

    # ---------------------------------------------------------------- being there

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ErrorCode, Outcome]:
        out = Outcome()
        error = self._check(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error, out
        out.timers[SESSION, member_id] = self.group.members[member_id].session_timeout_ms
        if self.group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS, out
        return ErrorCode.NONE, out

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        group = self.group
        if group.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group.is_fenced(member_id, instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if instance_id is not None and not group.has_static(instance_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.UNKNOWN_MEMBER_ID if group.state is State.EMPTY else ErrorCode.NONE

    def leave(
        self, member_id: str, instance_id: str | None, now_ms: int
    ) -> tuple[ErrorCode, Outcome]:
        out = Outcome()
        group = self.group
        if group.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, out
        if member_id and group.is_fenced(member_id, instance_id):
            return ErrorCode.FENCED_INSTANCE_ID, out
        if member_id in group.pending_members:
            self._forget_pending(member_id, out, now_ms)
            return ErrorCode.NONE, out
        if instance_id is not None and instance_id in group.static_members:
            member_id = group.static_members[instance_id]
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, out
        self._fail(member, out, now_ms)
        return ErrorCode.NONE, out

    def session_expired(self, member_id: str, now_ms: int) -> Outcome:
        """Fails a member that was silent for session.timeout.ms."""
        out = Outcome()
        group = self.group
        if group.state is State.DEAD:
            return out
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_members:
                self._forget_pending(member_id, out, now_ms)
        elif member.is_new or (member.joining is None and member.syncing is None):
            self._fail(member, out, now_ms)
        # else the member waits for an answer, after which its session begins again
        return out

    def _forget_pending(self, member_id: str, out: Outcome, now_ms: int) -> None:
        self.group.pending_members.pop(member_id, None)
        out.timers[SESSION, member_id] = None
        self._maybe_complete(out, now_ms)

    def _fail(self, member: Member, out: Outcome, now_ms: int) -> None:
        self._remove(member, out)
        if self.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare(out)
        self._maybe_complete(out, now_ms)

    def _remove(self, member: Member | None, out: Outcome) -> None:
        if member is None:
            return
        if member.joining is not None:
            _refuse(out, member.joining, "", ErrorCode.UNKNOWN_MEMBER_ID)
        if member.syncing is not None:
            out.answers.append((member.syncing, Synced(ErrorCode.UNKNOWN_MEMBER_ID)))
        self._forget(member, out)

    def _forget(self, member: Member, out: Outcome) -> None:
        group = self.group
        group.members.pop(member.member_id, None)
        group.pending_sync.pop(member.member_id, None)
        if member.instance_id is not None:
            group.static_members.pop(member.instance_id, None)
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), None)
        out.timers[SESSION, member.member_id] = None

    # ---------------------------------------------------------------- coming and going

    def loaded(self) -> Outcome:
        """Called when this broker begins to coordinate the group: every session begins again."""
        out = Outcome()
        for member in self.group.members.values():
            out.timers[SESSION, member.member_id] = member.session_timeout_ms
        if len(self.group.members) > self.limits.max_size:
            self._prepare(out)
        return out

    def became_classic(self, *, rebalances: bool) -> Outcome:
        """Called when the group has just come from the consumer protocol."""
        out = self.loaded()
        if rebalances:
            self._prepare(out)
        return out

    def unloaded(self) -> Outcome:
        """Called when another broker coordinates the group: refuses every waiting client."""
        self.group.state = State.DEAD
        return refuse_all(self.group, ErrorCode.NOT_COORDINATOR)


def _refuse(out: Outcome, ticket: Ticket, member_id: str, error: ErrorCode) -> None:
    out.answers.append((ticket, Joined(error, member_id)))
