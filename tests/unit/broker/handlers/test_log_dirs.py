"""AlterReplicaLogDirs, and DescribeLogDirs about a replica on its way."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.handlers import alter_replica_log_dirs, describe_log_dirs
from highwater.broker.log.parts import Origin
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.unit.broker.handlers.conftest import in_broker
from tests.unit.broker.log.conftest import batch

T0 = TopicPartition("t", 0)
SELF = BrokerId(1)


async def alter(b: Any, version: int, path: str, *topics: tuple[str, list[int]]) -> Any:
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    named = [wanted.AlterReplicaLogDirTopic(name=n, partitions=p) for n, p in topics]
    request = AlterReplicaLogDirsRequest(dirs=[wanted(path=path, topics=named)])
    answer = await b.ask(alter_replica_log_dirs, version, request)
    return {
        (t.topic_name, p.partition_index): ErrorCode(p.error_code).name
        for t in answer.results
        for p in t.partitions
    }


async def replicas(b: Any) -> list[tuple[str, int, bool]]:
    found = await b.ask(describe_log_dirs, 4, DescribeLogDirsRequest(topics=None))
    assert all(0 <= r.usable_bytes <= r.total_bytes > 0 for r in found.results)
    return [
        (r.log_dir, p.offset_lag, p.is_future_key)
        for r in found.results
        for t in r.topics
        for p in t.partitions
    ]


@pytest.mark.parametrize("version", range(3))
@in_broker(log_dirs=("/a", "/b"))
async def test_a_replica_moves(b: Any, version: int) -> None:
    services = b.services
    for path in ("/a", "/b"):
        services.world.disk.make_dirs(path)
    await services.logs.load("the-cluster", SELF)
    partition = services.replicas._host(T0, is_new=True)
    state = LeaderAndIsr(SELF, LeaderEpoch(0), ControllerEpoch(1), (1,), ZkVersion(0), (1,))
    partition.make_leader(state, 0)
    for _ in range(3):
        data = batch()
        services.replicas.append(
            services.replicas.partition(T0), memoryview(data), -1, Origin.CLIENT
        )
    assert await replicas(b) == [("/a", 0, False)]
    assert await alter(b, version, "/b", ("t", [0, 1]), ("nobody", [0])) == {
        ("t", 0): "NONE",
        ("t", 1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nobody", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert await replicas(b) == [("/a", 0, False), ("/b", 3, True)]
    assert await alter(b, version, "/c", ("t", [0])) == {("t", 0): "LOG_DIR_NOT_FOUND"}
    long = "x" * 230
    assert await alter(b, version, "/b", (long, [0])) == {(long, 0): "INVALID_TOPIC_EXCEPTION"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(services.replicas.moves.run)
        with trio.fail_after(10):
            while not services.replicas.moves.moved:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert await replicas(b) == [("/b", 0, False)]
    services.logs.offline_dirs.add("/a")
    assert await alter(b, version, "/a", ("t", [0])) == {("t", 0): "KAFKA_STORAGE_ERROR"}
