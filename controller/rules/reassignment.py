"""Moves partitions to other brokers (KIP-455).

A move has three phases.  First the assignment is written with both sets in it: the target, then the
rest of the origin, with the lists `adding` and `removing`; from then on any controller can go on
with the move.  While part of the target is not in the ISR, all replicas get the new assignment
under a new leader epoch, and the new ones start to fetch.  Once the whole target is in the ISR (a
watch on the state znode shows that), the leader moves into the target if it is not there, and the
other replicas are taken out of the ISR, stopped and deleted.  Last of all the assignment is written
as the target alone, because only the assignment still knows the origin.

A new order of the same replicas is a move that is complete at once: it changes the preferred
leader, under a new leader epoch, without moving data.  To cancel a move is to move to the origin.

Deviations: replicas that a new target or a cancellation no longer wants leave the ISR before the
assignment is written, not after it: Kafka's controller, if it fails in between, leaves members in
the ISR that no assignment names.  And a cancellation or a new target that would leave no member of
the ISR is refused, as in KRaft mode: it would lose acknowledged records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from highwater.controller.rules import partitions, replicas, topic_deletion, topics
from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import Exists, Get, Procedure, Reply, read, write
from highwater.controller.rules.election import Strategy
from highwater.controller.rules.events import AlterReassignments, ListReassignments, Outcome
from highwater.controller.rules.state import Replica, ReplicaPhase, State
from highwater.controller.rules.state_znodes import Failed, read_states, write_states
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import BrokerId, LeaderEpoch, TopicPartition
from highwater.kafka.znodes import PartitionState
from highwater.world.api import BadVersion, Delete, SetData, ZkError

log = logging.getLogger("controller")

_OK: Outcome = (ErrorCode.NONE, None)
_UNCLEAN = "It would take away every replica of the ISR, and what they alone have."
_UNKNOWN: Outcome = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


# ---- requests


def requested(state: State, event: AlterReassignments) -> Procedure[None]:
    """Handles AlterPartitionReassignments: a target for each partition, or None to cancel."""
    outcomes: dict[TopicPartition, Outcome] = {}
    accepted: dict[TopicPartition, ReplicaAssignment] = {}
    for tp, target in event.targets.items():
        refused = None if target is None else _refuse(state, tp, target)
        if refused is not None:
            outcomes[tp] = refused
            continue
        wanted = _build(state, tp, target)
        if wanted is None:
            outcomes[tp] = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
        else:
            accepted[tp] = wanted
    yield from _remove_from_znode(lambda tp, _: tp in accepted)
    outcomes.update((yield from _trigger(state, accepted)))
    state.effects.append(Reply(event.token, outcomes))


def znode_changed(state: State) -> Procedure[list[TopicPartition]]:
    """Handles /admin/reassign_partitions, which tools before Kafka 2.4 write."""
    answer = yield from _read_znode()
    if answer is None:
        return []
    outcomes: dict[TopicPartition, Outcome] = {}
    accepted: dict[TopicPartition, ReplicaAssignment] = {}
    for tp, target in answer.items():
        wanted = _build(state, tp, target)
        if wanted is not None:
            accepted[tp] = wanted
    outcomes.update((yield from _trigger(state, accepted)))
    failed = {tp for tp, outcome in outcomes.items() if outcome != _OK}
    if failed:
        log.warning("reassignments that could not start: %s", sorted(map(str, failed)))
        yield from _remove_from_znode(lambda tp, _: tp in failed)
    return [tp for tp in outcomes if tp not in failed]


def listed(state: State, event: ListReassignments) -> None:
    wanted = state.reassigning if event.partitions is None else event.partitions
    state.effects.append(
        Reply(
            event.token,
            {tp: a for tp in wanted if (a := state.assignment(tp)).is_being_reassigned},
        )
    )


def _refuse(state: State, tp: TopicPartition, target: tuple[BrokerId, ...]) -> Outcome | None:
    if not target:
        problem = "Empty replica list specified in partition reassignment."
    elif len(set(target)) != len(target):
        problem = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
    elif min(target) < 0:
        problem = f"Invalid broker id in replica list: {list(target)}"
    else:
        live = state.live_ids()
        adding = state.assignment(tp).reassign_to(target).adding
        if all(r in live for r in adding):
            return None
        problem = (
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {list(adding)}, live broker list: {sorted(live)}"
        )
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem


def _build(
    state: State, tp: TopicPartition, target: tuple[BrokerId, ...] | None
) -> ReplicaAssignment | None:
    now = state.assignment(tp)
    if target is not None:
        return now.reassign_to(target)
    return now.reassign_to(now.origin) if now.is_being_reassigned else None


def _trigger(
    state: State, wanted: Mapping[TopicPartition, ReplicaAssignment]
) -> Procedure[dict[TopicPartition, Outcome]]:
    outcomes: dict[TopicPartition, Outcome] = {}
    for tp, assignment in wanted.items():
        if state.is_queued_for_deletion(tp.topic) or not state.replicas(tp):
            outcomes[tp] = _UNKNOWN
            continue
        problem = yield from reassign(state, tp, assignment)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if problem is _UNCLEAN:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        outcomes[tp] = _OK if problem is None else (code, problem)
    return outcomes


# ---- the move


def reassign(state: State, tp: TopicPartition, wanted: ReplicaAssignment) -> Procedure[str | None]:
    """Starts a move, or goes on with one; returns the error, or None."""
    topic_deletion.mark_ineligible(state, (tp.topic,), "it is being reassigned")
    problem = yield from _update_assignment(state, tp, wanted)
    if problem is not None:
        return problem
    state.reassigning[tp] = None
    if not (yield from _is_complete(state, tp, wanted)):
        yield from _bump_leader_epoch(state, tp, wanted)
        yield from replicas.change(
            state, [Replica(tp, r) for r in wanted.adding if _is_absent(state, tp, r)], _NEW
        )
        return None
    adding = [Replica(tp, r) for r in wanted.adding if not _is_absent(state, tp, r)]
    yield from replicas.change(state, adding, ReplicaPhase.ONLINE)
    completed = ReplicaAssignment(wanted.target)
    state.assign(tp, completed)
    yield from _move_leader_if_required(state, tp, completed)
    yield from _stop(state, tp, wanted.removing)
    problem = yield from _write_assignment(state, tp, completed)
    if problem is not None:
        return problem
    state.assign(tp, completed)
    state.reassigning.pop(tp, None)
    yield from _remove_from_znode(lambda other, target: other == tp and target == completed[0])
    yield from requests.send_update_metadata(state, (tp,))
    yield from topic_deletion.resume_for(state, (tp.topic,))
    return None


_NEW = ReplicaPhase.NEW


def _is_absent(state: State, tp: TopicPartition, broker: BrokerId) -> bool:
    return Replica(tp, broker) not in state.replica_phases


def isr_changed(state: State, tp: TopicPartition) -> Procedure[None]:
    """Handles a change in a moving partition's state: goes on if the whole target is in sync."""
    if tp in state.reassigning:
        wanted = state.assignment(tp)
        if (yield from _is_complete(state, tp, wanted)):
            yield from reassign(state, tp, wanted)


def resume(
    state: State, wanted: Callable[[TopicPartition, ReplicaAssignment], bool]
) -> Procedure[None]:
    """Goes on with the moves that `wanted` picks (a broker started, a controller took over)."""
    for tp in list(state.reassigning):
        if tp in state.reassigning and wanted(tp, state.assignment(tp)):
            yield from reassign(state, tp, state.assignment(tp))


def _update_assignment(
    state: State, tp: TopicPartition, wanted: ReplicaAssignment
) -> Procedure[str | None]:
    now = state.assignment(tp)
    if now == wanted:
        return None
    # replicas that an earlier target was adding, and this one does not want
    unwanted = tuple(r for r in now.replicas if r not in wanted.replicas)
    if unwanted:
        # they leave the ISR, and cannot join again, before the assignment forgets them: if this
        # controller fails in between, no broker would take them out.  New replicas are told only
        # when the assignment names them, since one that fetches at once may join the ISR at once.
        left = now.without(unwanted)
        state.assign(tp, left)
        problem = yield from _bump_leader_epoch(state, tp, left)
        if problem is not None:
            state.assign(tp, now)
            return problem
        yield from _stop(state, tp, unwanted)
    problem = yield from _write_assignment(state, tp, wanted)
    state.assign(tp, wanted if problem is None else now)
    return problem


def _is_complete(state: State, tp: TopicPartition, wanted: ReplicaAssignment) -> Procedure[bool]:
    """Whether the whole target is in the ISR; the read sets the watch on the state again."""
    if not wanted.is_being_reassigned:
        return True
    known = (yield from read_states(state, (tp,), watch=True))[tp]
    return isinstance(known, PartitionState) and set(wanted.target) <= set(known.isr)


def _move_leader_if_required(
    state: State, tp: TopicPartition, completed: ReplicaAssignment
) -> Procedure[None]:
    leader = state.leader(tp)
    if leader in completed.replicas and (state.is_online(leader, tp) or leader in state.suspected):
        yield from _bump_leader_epoch(state, tp, completed)
    else:
        yield from partitions.bring_online(state, (tp,), Strategy.REASSIGN)


def _bump_leader_epoch(
    state: State, tp: TopicPartition, assignment: ReplicaAssignment
) -> Procedure[str | None]:
    """Writes a higher leader epoch with the same leader and ISR, and sends all replicas the
    assignment.  After that, a leader that the assignment does not name cannot change the ISR.

    Returns the reason if the move must not go on, as when the assignment names no member of the
    ISR that this write would keep.
    """
    while True:
        now = (yield from read_states(state, (tp,)))[tp]
        if not isinstance(now, PartitionState):
            why = now.reason if isinstance(now, Failed) else "it has no state in ZooKeeper"
            log.error("cannot tell the replicas of %s its assignment: %s", tp, why)
            return why if isinstance(now, Failed) else None
        if not set(now.isr) & set(assignment.replicas):
            return _UNCLEAN
        new = now._replace(
            controller_epoch=state.epoch, leader_epoch=LeaderEpoch(now.leader_epoch + 1)
        )
        result = (yield from write_states({tp: new}))[tp]
        if isinstance(result, PartitionState):
            break
        if not isinstance(result, BadVersion):
            log.error("cannot tell the replicas of %s its assignment: %s", tp, result)
            return str(result)
    state.leadership[tp] = result
    requests.add_leader_and_isr(state, assignment.origin, tp, is_new=False)
    requests.add_leader_and_isr(state, assignment.adding, tp, is_new=True)
    yield from requests.flush(state)
    return None


def _stop(state: State, tp: TopicPartition, brokers: tuple[BrokerId, ...]) -> Procedure[None]:
    """Takes replicas out of the ISR, stops and deletes them; does not wait for the deletion."""
    gone = [Replica(tp, r) for r in brokers if not _is_absent(state, tp, r)]
    yield from replicas.change(state, gone, ReplicaPhase.OFFLINE)
    yield from replicas.change(state, gone, ReplicaPhase.DELETION_STARTED)
    yield from replicas.change(state, gone, ReplicaPhase.DELETION_SUCCESSFUL)
    yield from replicas.change(state, gone, ReplicaPhase.NON_EXISTENT)


# ---- znodes


def delete_all(paths: list[str]) -> Procedure[None]:
    """Deletes handled notifications; missing ones do not matter."""
    yield from write([(Delete(path),) for path in paths])


def _write_assignment(
    state: State, tp: TopicPartition, assignment: ReplicaAssignment
) -> Procedure[str | None]:
    """Writes an assignment, and keeps the partitions that CreatePartitions has added and that
    `topics.modified` has yet to handle; Kafka's controller writes over them."""
    path = znodes.topic_path(tp.topic)
    while True:
        (answer,) = yield from read([Get(path)])
        assigned = dict(state.assignments.get(tp.topic, {}))
        topic_id = state.topic_ids.get(tp.topic)
        if answer is not None:
            found = topics.decode(tp.topic, answer[0])
            topic_id = topic_id or (found.topic_id if found is not None else None)
            assigned = {**(found.partitions if found is not None else {}), **assigned}
        assigned[tp.partition] = assignment
        data = znodes.encode_topic(znodes.TopicState(dict(sorted(assigned.items())), topic_id))
        version = answer[1].version if answer is not None else -1
        (result,) = yield from write([(SetData(path, data, version),)])
        if isinstance(result, BadVersion):
            continue  # a partition was added meanwhile
        if isinstance(result, ZkError):
            log.error("the assignment of %s is not written: %s", tp, result)
            return str(result)
        return None


def _read_znode() -> Procedure[dict[TopicPartition, tuple[BrokerId, ...]] | None]:
    path = znodes.REASSIGN_PARTITIONS
    found, answer = yield from read([Exists(path, watch=True), Get(path)])
    if found is None or answer is None:
        return None
    try:
        return znodes.decode_reassign_partitions(answer[0])
    except znodes.BadZnode as e:
        log.error("%s", e)
        return {}


def _remove_from_znode(
    done: Callable[[TopicPartition, tuple[BrokerId, ...]], bool],
) -> Procedure[None]:
    """Takes finished or superseded moves out of the znode, and deletes it with the last one."""
    pending = yield from _read_znode()
    if pending is None:
        return
    left = {tp: target for tp, target in pending.items() if not done(tp, target)}
    path = znodes.REASSIGN_PARTITIONS
    if not left:
        yield from write([(Delete(path),)])
    elif len(left) < len(pending):
        yield from write([(SetData(path, znodes.encode_reassign_partitions(left)),)])
