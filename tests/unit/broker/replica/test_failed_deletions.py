"""What StopReplica is answered for a log in a directory that is offline."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from highwater.broker.replica.partition_states import StopReplica
from highwater.kafka.errors import ErrorCode
from tests.unit.broker.replica.test_dir_moves import TP, Rig


async def stop(rig: Rig) -> ErrorCode:
    answer = await rig.replicas.stop_replica([StopReplica(TP, -2, delete=True)], lambda: None)
    return answer[TP]


@pytest.mark.parametrize("has_a_role", [True, False])
async def test_a_log_that_could_not_be_deleted_is_not_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_a_role: bool
) -> None:
    rig = Rig(tmp_path)
    await rig.logs.load("c", 1)
    rig.host()
    rig.send(1)
    if not has_a_role:
        del rig.replicas.partitions[TP]

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(rig.logs.trash, "rename", fails)
    assert await stop(rig) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(rig.failed) == 1
    monkeypatch.undo()
    assert await stop(rig) is ErrorCode.KAFKA_STORAGE_ERROR, "it comes back with its directory"
    rig.kill()

    repaired = Rig(tmp_path)
    await repaired.logs.load("c", 1)
    assert TP in repaired.logs.logs
    assert await stop(repaired) is ErrorCode.NONE
    assert await stop(repaired) is ErrorCode.NONE
    repaired.kill()


async def test_who_starts_with_a_broken_directory_cannot_know_what_is_there(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    (tmp_path / "b").write_text("no directory")
    await rig.logs.load("c", 1)
    assert rig.failed == [str(tmp_path / "b")]
    assert await stop(rig) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.host()
    assert await stop(rig) is ErrorCode.NONE, "this one was in the other directory"
    assert await stop(rig) is ErrorCode.NONE
    rig.kill()
