"""The partition state machine (Kafka's PartitionStateMachine).

A partition is NonExistent, New (it has replicas but never had a leader), Online (it has a leader)
or Offline (the leader is gone).  Only the step to Online does anything: a new partition gets its
first live replica as leader and all live ones as ISR; for others an election is held.

An election first uses the state in memory.  For a *write* that is as good as reading again, because
ZooKeeper compares the version, and it saves a round trip when a broker with a thousand leaders
dies.  The state is read again before the decision that *no* replica can lead, or that an election
is unclean.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import Get, GroupResult, Procedure, in_turns, read, write
from highwater.controller.rules.election import Choice, Strategy, apply, choose, live_in_sync
from highwater.controller.rules.state import PartitionPhase, State
from highwater.controller.rules.state_znodes import Failed, read_states, write_states
from highwater.kafka import znodes
from highwater.kafka.types import LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.znodes import PartitionState
from highwater.world.api import BadVersion, Create, NodeExists, NoNode, ZkError, ZkOp

log = logging.getLogger("controller")

Elections = dict[TopicPartition, PartitionState | Failed]
_NEW, _ONLINE, _OFFLINE = PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE
_GONE = PartitionPhase.NON_EXISTENT

VALID_BEFORE: Mapping[PartitionPhase, tuple[PartitionPhase, ...]] = {
    _NEW: (_GONE,),
    _ONLINE: (_NEW, _ONLINE, _OFFLINE),
    _OFFLINE: (_NEW, _ONLINE, _OFFLINE),
    _GONE: (_OFFLINE,),
}


def mark(state: State, partitions: Iterable[TopicPartition], target: PartitionPhase) -> None:
    """Makes the changes that cause no request: to New, Offline and NonExistent."""
    for tp in _valid(state, partitions, target):
        state.partition_phases[tp] = target


def bring_online(
    state: State, partitions: Iterable[TopicPartition], strategy: Strategy
) -> Procedure[Elections]:
    """Gives new partitions a first leader, elects one for others; returns the elections."""
    valid = _valid(state, partitions, _ONLINE)
    new = [tp for tp in valid if state.partition_phases[tp] is _NEW]
    others = [tp for tp in valid if state.partition_phases[tp] is not _NEW]
    if new:
        yield from _initialize(state, new)
    outcomes: Elections = {}
    if others:
        outcomes = yield from _elect(state, others, strategy)
    for tp, outcome in outcomes.items():
        if isinstance(outcome, Failed):
            log.info("no leader for %s (%s): %s", tp, strategy.value, outcome.reason)
        else:
            state.partition_phases[tp] = _ONLINE
    yield from requests.flush(state)
    return outcomes


def trigger_online(state: State, topic: str | None = None) -> Procedure[Elections]:
    """Tries all new and offline partitions again, or only those of one topic."""
    waiting = [
        tp
        for tp in state.partitions_in(_NEW, _OFFLINE)
        if not state.is_queued_for_deletion(tp.topic) and topic in (None, tp.topic)
    ]
    return (yield from bring_online(state, waiting, Strategy.OFFLINE))


def initialize_phases(state: State) -> None:
    """Sets the phases at a controller's start, from the leaders' states."""
    for tp in state.all_partitions():
        known = state.leadership.get(tp)
        if known is None:
            phase = _NEW
        elif known.leader in state.suspected or state.is_online(known.leader, tp):
            phase = _ONLINE
        else:
            phase = _OFFLINE
        state.partition_phases[tp] = phase


def _valid(
    state: State, partitions: Iterable[TopicPartition], target: PartitionPhase
) -> list[TopicPartition]:
    allowed = VALID_BEFORE[target]
    valid = []
    for tp in partitions:
        phase = state.partition_phases.setdefault(tp, _GONE)
        if phase in allowed:
            valid.append(tp)
        else:
            log.error("%s cannot go from %s to %s", tp, phase.value, target.value)
    return valid


# ---- the first leader


def _initialize(state: State, partitions: list[TopicPartition]) -> Procedure[None]:
    proposals: dict[TopicPartition, PartitionState] = {}

    def propose(tp: TopicPartition) -> None:
        live = tuple(r for r in state.replicas(tp) if state.is_online(r, tp))
        if live:
            proposals[tp] = PartitionState(state.epoch, live[0], LeaderEpoch(0), live)
        else:
            log.warning("%s cannot go online: none of its replicas is alive", tp)

    def znodes_of(tp: TopicPartition, new: PartitionState) -> tuple[ZkOp, ...]:
        state_znode = Create(znodes.state_path(tp), znodes.encode_partition_state(new))
        return Create(znodes.partition_path(tp)), state_znode

    yield from in_turns(propose, partitions)
    topics = dict.fromkeys(tp.topic for tp in proposals)
    yield from write([(Create(znodes.partitions_path(t)),) for t in topics])
    results = yield from write((yield from in_turns(znodes_of, proposals, proposals.values())))
    there: list[TopicPartition] = []

    def take(tp: TopicPartition, new: PartitionState, result: GroupResult) -> None:
        if not isinstance(result, ZkError):
            _initialized(state, tp, new._replace(zk_version=ZkVersion(0)))
        elif isinstance(result, NodeExists):
            there.append(tp)
        else:
            log.error("%s cannot go online: %s", tp, result)

    yield from in_turns(take, proposals, proposals.values(), results)
    if there:
        yield from _adopt(state, {tp: proposals[tp] for tp in there})


def _adopt(state: State, proposals: dict[TopicPartition, PartitionState]) -> Procedure[None]:
    """Takes over an earlier try's znodes: its answer was lost, or the state is missing."""
    found = yield from read_states(state, proposals)
    missing = [tp for tp, known in found.items() if known is None]
    results = yield from write(
        [
            (Create(znodes.state_path(tp), znodes.encode_partition_state(proposals[tp])),)
            for tp in missing
        ]
    )
    for tp, result in zip(missing, results, strict=True):
        if isinstance(result, ZkError):
            log.error("%s cannot go online: %s", tp, result)
        else:
            _initialized(state, tp, proposals[tp]._replace(zk_version=ZkVersion(0)))
    adopted = []
    for tp, known in found.items():
        if isinstance(known, PartitionState):
            state.leadership[tp] = known
            if known[:4] == proposals[tp][:4]:
                _initialized(state, tp, known)
            else:
                state.partition_phases[tp] = _OFFLINE
                adopted.append(tp)
        elif isinstance(known, Failed):
            log.error("%s cannot go online: %s", tp, known.reason)
    for tp, outcome in (yield from _elect(state, adopted, Strategy.OFFLINE)).items():
        if isinstance(outcome, PartitionState):
            state.partition_phases[tp] = _ONLINE


def _initialized(state: State, tp: TopicPartition, known: PartitionState) -> None:
    state.leadership[tp] = known
    state.partition_phases[tp] = _ONLINE
    requests.add_leader_and_isr(state, known.isr, tp, is_new=True)


# ---- elections


def _elect(
    state: State, partitions: list[TopicPartition], strategy: Strategy
) -> Procedure[Elections]:
    outcomes: Elections = {}
    cached = {tp: state.leadership[tp] for tp in partitions if tp in state.leadership}
    again = [tp for tp in partitions if tp not in cached]
    again += yield from _try(state, cached, strategy, outcomes, sure=False)
    while again:
        current: dict[TopicPartition, PartitionState] = {}
        for tp, known in (yield from read_states(state, again)).items():
            match known:
                case PartitionState():
                    current[tp] = known
                case Failed():
                    outcomes[tp] = known
                case None:
                    outcomes[tp] = Failed("it has no state in ZooKeeper")
        again = yield from _try(state, current, strategy, outcomes, sure=True)
    return outcomes


def _try(
    state: State,
    current: dict[TopicPartition, PartitionState],
    strategy: Strategy,
    outcomes: Elections,
    *,
    sure: bool,
) -> Procedure[list[TopicPartition]]:
    """One round; returns the partitions to try again with what ZooKeeper holds then."""
    unclean: set[str] = set()
    if sure and strategy in (Strategy.OFFLINE, Strategy.UNCLEAN):
        unclean = yield from _unclean_topics(state, current, strategy)
    again: list[TopicPartition] = []
    choices: dict[TopicPartition, Choice] = {}
    proposals: dict[TopicPartition, PartitionState] = {}

    def propose(tp: TopicPartition, now: PartitionState) -> None:
        choice = choose(state, strategy, tp, now, tp.topic in unclean)
        if choice is not None:
            choices[tp] = choice
            proposals[tp] = apply(state, choice, now)
        elif sure:
            outcomes[tp] = Failed(
                f"no replica can lead: ISR {list(now.isr)}, live brokers {sorted(state.brokers)}"
            )
        else:
            again.append(tp)

    def take(tp: TopicPartition, result: PartitionState | ZkError) -> None:
        if isinstance(result, PartitionState):
            _elected(state, tp, choices[tp], result)
            outcomes[tp] = result
        elif isinstance(result, BadVersion) or (isinstance(result, NoNode) and not sure):
            again.append(tp)
        else:
            outcomes[tp] = Failed(str(result))

    yield from in_turns(propose, current, current.values())
    results = yield from write_states(proposals)
    yield from in_turns(take, results, results.values())
    return again


def _elected(state: State, tp: TopicPartition, choice: Choice, result: PartitionState) -> None:
    state.elections += 1
    if not choice.clean:
        state.unclean_elections += 1
        log.warning("unclean election of %s: leader %d was not in sync", tp, choice.leader)
    state.leadership[tp] = result
    requests.add_leader_and_isr(state, choice.recipients, tp, is_new=False)


def _unclean_topics(
    state: State, current: Mapping[TopicPartition, PartitionState], strategy: Strategy
) -> Procedure[set[str]]:
    """The topics in which any live replica may lead, and some ISR has no live member.

    A topic's own setting wins over this broker's, which wins over the cluster's; both of these (set
    at run time) win over the configuration file.
    """
    lost = sorted({tp.topic for tp, now in current.items() if not live_in_sync(state, tp, now)})
    if strategy is Strategy.UNCLEAN or not lost:
        return set(lost)
    paths = [
        znodes.config_path("brokers", znodes.DEFAULT_ENTITY),
        znodes.config_path("brokers", str(state.settings.broker_id)),
        *(znodes.config_path("topics", t) for t in lost),
    ]
    answers = yield from read([Get(path) for path in paths])
    settings = [_unclean_setting(p, a) for p, a in zip(paths, answers, strict=True)]
    default = state.settings.unclean_leader_election_enable
    for dynamic in settings[:2]:
        default = default if dynamic is None else dynamic
    return {
        topic
        for topic, own in zip(lost, settings[2:], strict=True)
        if (default if own is None else own)
    }


def _unclean_setting(path: str, answer: tuple[bytes, object] | None) -> bool | None:
    if answer is None:
        return None
    try:
        value = znodes.decode_config(answer[0]).get("unclean.leader.election.enable")
    except znodes.BadZnode as e:
        log.error("%s: %s; taken as no unclean election", path, e)
        return False
    return None if value is None else value.strip().lower() == "true"
