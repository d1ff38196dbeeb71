"""Reads and writes the state znodes of partitions, always with the version that was read.

The leader of a partition writes the same znode (its ISR), so a write may find another version.
Then the state is read again, and the decision made again: the loops are in `partitions` and
`replicas`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from highwater.controller.rules.effects import Get, GroupResult, Procedure, in_turns, read, write
from highwater.controller.rules.state import State
from highwater.kafka.types import TopicPartition, ZkVersion
from highwater.kafka.znodes import (
    BadZnode,
    PartitionState,
    decode_partition_state,
    encode_partition_state,
    state_path,
)
from highwater.world.api import SetData, Stat, ZkError, ZkOp

log = logging.getLogger("controller")


@dataclass(frozen=True, slots=True)
class Failed:
    """A change of state that did not happen, and the reason."""

    reason: str


def read_states(
    state: State, partitions: Iterable[TopicPartition], *, watch: bool = False
) -> Procedure[dict[TopicPartition, PartitionState | Failed | None]]:
    """The states in ZooKeeper; None for a partition that has none yet."""
    wanted = list(partitions)
    answers = yield from read([Get(state_path(tp), watch) for tp in wanted])

    def decoded(tp: TopicPartition, answer: Any) -> PartitionState | Failed | None:
        if answer is None:
            return None
        data, stat = answer
        try:
            known = decode_partition_state(tp, data, stat.version)
        except BadZnode as e:
            return Failed(str(e))
        if known.controller_epoch > state.epoch:
            return Failed(
                f"its state was written by a controller of epoch {known.controller_epoch}, "
                f"while this controller's epoch is {state.epoch}"
            )
        return known

    found = yield from in_turns(decoded, wanted, answers)
    return dict(zip(wanted, found, strict=True))


def write_states(
    proposals: Mapping[TopicPartition, PartitionState],
) -> Procedure[dict[TopicPartition, PartitionState | ZkError]]:
    """Replaces each state at its version; returns the new state, or the reason for a failure."""

    def replaced(tp: TopicPartition, new: PartitionState) -> tuple[ZkOp]:
        return (SetData(state_path(tp), encode_partition_state(new), new.zk_version),)

    def written(new: PartitionState, result: GroupResult) -> PartitionState | ZkError:
        if isinstance(result, ZkError):
            return result
        stat = result[0]
        assert isinstance(stat, Stat)
        return new._replace(zk_version=ZkVersion(stat.version))

    groups = yield from in_turns(replaced, proposals, proposals.values())
    results = yield from write(groups)
    states = yield from in_turns(written, proposals.values(), results)
    return dict(zip(proposals, states, strict=True))
