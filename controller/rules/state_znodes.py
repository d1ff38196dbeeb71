"""Reading and writing the state znodes of partitions, always with the version that was read.

The leader of a partition writes the same znode (its ISR), so a write may find another version.
Then the state is read again and decided anew: the loops are in `partitions` and `replicas`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from highwater.controller.rules.effects import AT_ONCE, PAUSE, Get, Procedure, read, write
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
    """A change of state that did not happen, and why."""

    reason: str


def read_states(
    state: State, partitions: Iterable[TopicPartition], *, watch: bool = False
) -> Procedure[dict[TopicPartition, PartitionState | Failed | None]]:
    """The states in ZooKeeper; None where there is none yet."""
    wanted = list(partitions)
    answers = yield from read([Get(state_path(tp), watch) for tp in wanted])
    found: dict[TopicPartition, PartitionState | Failed | None] = {}
    for n, (tp, answer) in enumerate(zip(wanted, answers, strict=True), 1):
        if n % AT_ONCE == 0:
            yield PAUSE
        if answer is None:
            found[tp] = None
            continue
        data, stat = answer
        try:
            known = decode_partition_state(tp, data, stat.version)
        except BadZnode as e:
            found[tp] = Failed(str(e))
            continue
        if known.controller_epoch > state.epoch:
            found[tp] = Failed(
                f"its state was written by a controller of epoch {known.controller_epoch}, "
                f"while this controller's epoch is {state.epoch}"
            )
        else:
            found[tp] = known
    return found


def write_states(
    proposals: Mapping[TopicPartition, PartitionState],
) -> Procedure[dict[TopicPartition, PartitionState | ZkError]]:
    """Replaces each state at its version; gives what is there then, or why it is not."""
    groups: list[tuple[ZkOp]] = []
    for n, (tp, new) in enumerate(proposals.items(), 1):
        groups.append((SetData(state_path(tp), encode_partition_state(new), new.zk_version),))
        if n % AT_ONCE == 0:
            yield PAUSE
    results = yield from write(groups)
    written: dict[TopicPartition, PartitionState | ZkError] = {}
    for n, ((tp, new), result) in enumerate(zip(proposals.items(), results, strict=True), 1):
        if n % AT_ONCE == 0:
            yield PAUSE
        if isinstance(result, ZkError):
            written[tp] = result
        else:
            stat = result[0]
            assert isinstance(stat, Stat)
            written[tp] = new._replace(zk_version=ZkVersion(stat.version))
    return written
