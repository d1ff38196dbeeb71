"""Chooses the leader of a partition: only the rules, one function for each reason.

A leader comes from the ISR, in the order of the assignment, so the preferred replica leads if it
can.  Only an unclean election goes beyond the ISR: it takes any live replica and loses the records
that this one lacks.  So the operator must allow it, and it is never held because of a suspicion.

Each election bumps the leader epoch, and that fences the former leader: its followers fetch with
the new epoch, and its own ISR writes fail on the version.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from highwater.controller.rules.state import State
from highwater.kafka.types import BrokerId, LeaderEpoch, TopicPartition
from highwater.kafka.znodes import PartitionState


class Strategy(Enum):
    OFFLINE = "offline"
    """The leader is gone, or there never was one; unclean only if the topic allows it."""
    UNCLEAN = "unclean"
    """As OFFLINE, but the operator has asked for any live replica."""
    SUSPECTED = "suspected"
    """As OFFLINE, but never unclean: the leader may be alive."""
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Choice(NamedTuple):
    """The new leader and ISR, and the replicas that get LeaderAndIsr."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    recipients: tuple[BrokerId, ...]
    clean: bool = True


def choose(
    state: State, strategy: Strategy, tp: TopicPartition, now: PartitionState, unclean: bool
) -> Choice | None:
    """The choice under a strategy; None if no replica can lead."""
    match strategy:
        case Strategy.OFFLINE | Strategy.UNCLEAN | Strategy.SUSPECTED:
            return _offline(state, tp, now, unclean)
        case Strategy.REASSIGN:
            return _first_of(state, tp, now, state.assignment(tp).target)
        case Strategy.PREFERRED:
            replicas = state.replicas(tp)
            found = _first_of(state, tp, now, replicas[:1])
            return None if found is None else found._replace(recipients=replicas)
        case Strategy.CONTROLLED_SHUTDOWN:
            return _controlled_shutdown(state, tp, now)


def apply(state: State, choice: Choice, now: PartitionState) -> PartitionState:
    """The state to write; `zk_version` is the one that it replaces."""
    return PartitionState(
        state.epoch,
        choice.leader,
        LeaderEpoch(now.leader_epoch + 1),
        choice.isr,
        now.zk_version,
    )


def live_in_sync(state: State, tp: TopicPartition, now: PartitionState) -> list[BrokerId]:
    return [r for r in now.isr if state.is_online(r, tp)]


def _offline(state: State, tp: TopicPartition, now: PartitionState, unclean: bool) -> Choice | None:
    live = tuple(r for r in state.replicas(tp) if state.is_online(r, tp))
    for candidate in live:
        if candidate in now.isr:
            return Choice(candidate, tuple(live_in_sync(state, tp, now)), live)
    if unclean and live and not any(r in state.suspected for r in now.isr):
        return Choice(live[0], (live[0],), live, clean=False)
    return None


def _first_of(
    state: State, tp: TopicPartition, now: PartitionState, candidates: tuple[BrokerId, ...]
) -> Choice | None:
    for candidate in candidates:
        if candidate in now.isr and state.is_online(candidate, tp):
            return Choice(candidate, now.isr, candidates)
    return None


def _controlled_shutdown(state: State, tp: TopicPartition, now: PartitionState) -> Choice | None:
    live = tuple(r for r in state.replicas(tp) if state.is_online(r, tp, or_shutting_down=True))
    for candidate in live:
        if candidate in now.isr and candidate not in state.shutting_down:
            isr = tuple(r for r in now.isr if r not in state.shutting_down)
            return Choice(candidate, isr, live)
    return None
