"""Which StopReplica a replica obeys: one of its leader epoch or a newer one."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.broker.replica.partition import Role
from highwater.broker.replica.partition_states import UNKNOWN_LEADER_EPOCH, StopReplica
from highwater.kafka.errors import ErrorCode
from tests.unit.broker.replica.test_dir_moves import TP, Rig


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (0, ErrorCode.FENCED_LEADER_EPOCH),  # the first term's, which comes late
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.NONE),
        (UNKNOWN_LEADER_EPOCH, ErrorCode.NONE),
        (-2, ErrorCode.NONE),  # the topic goes away
    ],
)
async def test_a_stop_of_an_earlier_leader_epoch_is_refused(
    tmp_path: Path, epoch: int, code: ErrorCode
) -> None:
    rig = Rig(tmp_path)
    await rig.logs.load("c", 1)
    partition = rig.host(epoch=2)
    answer = await rig.replicas.stop_replica([StopReplica(TP, epoch, delete=False)], lambda: None)
    assert answer[TP] is code
    assert (partition.role is Role.LEADER) == (code is not ErrorCode.NONE)
    rig.kill()
