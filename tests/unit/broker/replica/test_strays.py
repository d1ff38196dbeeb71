"""Which replicas a broker drops when UpdateMetadata names others."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.broker.metadata.metadata_update import MetadataUpdate
from highwater.broker.metadata.partition_metadata import PartitionMetadata
from highwater.broker.replica.partition_states import StopReplica
from highwater.broker.replica.strays import strays
from highwater.kafka.types import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.kafka.wire.records import validate_fetched
from tests.unit.broker.replica.test_fetcher import FOLLOWER, LEADER, hosted, replica_manager, sent
from tests.waiting import at_once

HELD, UNKNOWN = TopicPartition("held", 0), TopicPartition("unknown", 0)
HERE, OTHERS = (FOLLOWER, LEADER), (LEADER, BrokerId(3))


def update_of(
    tp: TopicPartition, epoch: int, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]
) -> MetadataUpdate:
    state = PartitionMetadata(
        LEADER, LeaderEpoch(epoch), isr, replicas, (), ZkVersion(0), ControllerEpoch(1)
    )
    return MetadataUpdate(BrokerId(1), {}, {tp.topic: {tp.partition: state}})


@pytest.mark.parametrize("has_a_role", [True, False])
@pytest.mark.parametrize(
    ("epoch", "replicas", "isr", "is_stray"),
    [
        (1, OTHERS, OTHERS, True),
        (1, HERE, HERE, False),
        (1, HERE, OTHERS, False),  # it has left the ISR alone
        (1, OTHERS, (*HERE, BrokerId(3)), False),  # it is being taken away, and counts still
        (0, OTHERS, OTHERS, False),  # as old as what is known here: it has come late
    ],
)
async def test_a_replica_that_others_have_by_now(
    tmp_path: Path,
    has_a_role: bool,
    epoch: int,
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    is_stray: bool,
) -> None:
    manager = await replica_manager(tmp_path)
    partition = hosted(manager, HELD)
    answer = sent(HELD, 0, 1)
    partition.append_fetched(answer.records, validate_fetched(answer.records), 1, 0)
    if not has_a_role:
        del manager.partitions[HELD]  # as after a start, when its log is there alone

    found = at_once(strays(manager, update_of(HELD, epoch, replicas, isr)))

    assert found == ([StopReplica(HELD, epoch, delete=True)] if is_stray else [])
    assert at_once(strays(manager, update_of(UNKNOWN, epoch, OTHERS, OTHERS))) == []


async def test_a_topic_that_goes_away_is_left_to_stop_replica(tmp_path: Path) -> None:
    manager = await replica_manager(tmp_path)
    hosted(manager, HELD)
    gone = MetadataUpdate(BrokerId(1), {}, {HELD.topic: {HELD.partition: None}})
    assert at_once(strays(manager, gone)) == []
