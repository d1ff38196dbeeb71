"""The common part of the pipeline's benchmarks: a load process, a broker's numbers, topics."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

import trio
from kazoo.client import KazooClient

from highwater.bench.figures.sides import BenchFailed
from highwater.bench.loads.many_producers import Outcome, Pressure
from highwater.cluster.ask import ask, metadata
from highwater.cluster.leader_moves import controller_address
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire import messages

_CREATE, _DELETE, _LIST_OFFSETS = 4, 4, 4


@dataclass(slots=True)
class Running:
    """A load process; `end` stops it and gives its outcome."""

    process: trio.Process
    _said: bytes = b""

    async def line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._said:
            more = await self.process.stdout.receive_some()
            if not more:
                raise BenchFailed("the load ended early")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line

    async def end(self, within_s: float = 0) -> Outcome:
        """Ends the process, unless it ends first; gives its outcome."""
        assert self.process.stdin is not None
        line = b""
        with trio.move_on_after(within_s):
            line = await self.line()
        if not line:
            await self.process.stdin.aclose()
            line = await self.line()
        return Outcome(**json.loads(line))


@asynccontextmanager
async def pressing(pressure: Pressure) -> AsyncIterator[Running]:
    """A connected load process; it is killed at the end if it still runs."""
    process = await trio.lowlevel.open_process(
        pressure.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        running = Running(process)
        with trio.fail_after(120):
            await running.line()
        yield running
    finally:
        process.kill()
        await process.wait()


async def numbers(port: int) -> Mapping[str, float]:
    """A broker's page of metrics, series by series."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        data = b"".join([part async for part in stream])
    lines = data.partition(b"\r\n\r\n")[2].decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def create_topic(
    cluster: ProcessCluster,
    topic: str,
    brokers: list[int],
    configs: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Makes a topic of one partition on these brokers; returns when the first of them leads it."""
    wanted = {"min.insync.replicas": "1", "file.delete.delay.ms": "100", **configs}
    creatable = messages.CreateTopicsRequest.CreatableTopic
    assigned = creatable.CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)
    request = messages.CreateTopicsRequest(
        topics=[
            creatable(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[assigned],
                configs=[
                    creatable.CreatableTopicConfig(name=name, value=value)
                    for name, value in wanted.items()
                ],
            )
        ],
        timeout_ms=30_000,
        validate_only=False,
    )
    answer = await ask(await controller_address(cluster), request, _CREATE, 40)
    code = answer.topics[0].error_code
    if code:
        raise BenchFailed(f"topic {topic}: {ErrorCode(code).name}")
    leader = cluster.address(brokers[0])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = (await metadata(leader, [topic])).topics[0]
        if found.partitions and found.partitions[0].leader_id == brokers[0]:
            return
        await trio.sleep(0.02)
    raise BenchFailed(f"broker {brokers[0]} does not lead {topic}")


async def delete_topic(cluster: ProcessCluster, topic: str, timeout_s: float = 120) -> float:
    """The seconds until the controller has deleted it with its replicas: its znode is then gone."""
    request = messages.DeleteTopicsRequest(topic_names=[topic], timeout_ms=int(timeout_s * 1000))
    address = await controller_address(cluster)
    began = time.monotonic()
    answer = await ask(address, request, _DELETE, timeout_s + 5)
    code = answer.responses[0].error_code
    if code:
        raise BenchFailed(f"topic {topic} was not deleted: {ErrorCode(code).name}")
    await trio.to_thread.run_sync(_gone, cluster.zookeeper_connect, topic, timeout_s)
    return time.monotonic() - began


def _gone(connect: str, topic: str, timeout_s: float) -> None:
    client, deadline = KazooClient(connect), time.monotonic() + timeout_s
    client.start()
    try:
        while client.exists(f"/brokers/topics/{topic}") is not None:
            if time.monotonic() > deadline:
                raise BenchFailed(f"topic {topic} is still there after {timeout_s:g} s")
            time.sleep(0.002)
    finally:
        client.stop()
        client.close()


async def end_offset(address: tuple[str, int], topic: str) -> int:
    listed = messages.ListOffsetsRequest.ListOffsetsTopic
    partition = listed.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1
    )
    request = messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[listed(name=topic, partitions=[partition])]
    )
    answer = await ask(address, request, _LIST_OFFSETS, 30)
    return int(answer.topics[0].partitions[0].offset)
