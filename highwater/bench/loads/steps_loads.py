"""The loads of `highwater bench steps`: each drives a cluster of three brokers for a while."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from random import Random
from struct import Struct

import trio

from highwater.bench.figures.sides import BenchFailed
from highwater.bench.loads.bench_topics import create_topic, delete_topic, grow_topic
from highwater.bench.loads.keyed import Keyed, send
from highwater.bench.loads.many_partitions import create, until_in_sync, until_led
from highwater.bench.loads.many_producers import Pressure
from highwater.bench.loads.pipeline_load import pressing
from highwater.cluster.ask import ask, metadata
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages
from highwater.kafka.wire.fetch import FetchPartition, FetchRequest, build_fetch
from highwater.kafka.wire.header import request_header
from highwater.world.real.network import RealNetwork

_NETWORK = RealNetwork()
_TOPIC = "load"
_MIB = 1 << 20
_READERS = 3
_SIZE = Struct(">i")


@dataclass(frozen=True, slots=True)
class Load:
    """The sizes of the loads."""

    seconds: float = 8
    partitions: int = 1000
    members: int = 200
    connections: int = 20


Drive = Callable[[ProcessCluster, Load], Awaitable[None]]
_ONE = {"min.insync.replicas": "1", "file.delete.delay.ms": "100"}


async def one_partition(
    cluster: ProcessCluster, topic: str, config: Mapping[str, str] | None = None
) -> None:
    """A topic of one partition, which broker 1 leads."""
    given = {**_ONE, **(config or {})}
    await create_topic(cluster.direct_bootstrap, topic, 1, 3, given, [1, 2, 3])


async def _batches(cluster: ProcessCluster, load: Load, kib: int) -> None:
    """A closed loop of producers with acks=all, and readers of all records from the beginning."""
    await one_partition(cluster, _TOPIC)
    host, port = cluster.address(1)
    pressure = Pressure(host, port, _TOPIC, load.connections, kib * 1024, seconds=load.seconds)
    async with trio.open_nursery() as nursery, pressing(pressure) as running:
        for _ in range(3):
            nursery.start_soon(_read, cluster.address(1))
        outcome = await running.end(within_s=load.seconds + 60)
        nursery.cancel_scope.cancel()
    if not outcome.acked or outcome.errors:
        raise BenchFailed(f"batches of {kib} KiB: {outcome.acked} acknowledged, {outcome.errors}")


async def batches_16(cluster: ProcessCluster, load: Load) -> None:
    await _batches(cluster, load, 16)


async def batches_128(cluster: ProcessCluster, load: Load) -> None:
    await _batches(cluster, load, 128)


async def _read(address: tuple[str, int], offsets: Iterable[int] = repeat(0)) -> None:
    """Reads a MiB from each of these offsets on; or the topic's first bytes, again and again."""
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        for offset in offsets:
            partition = FetchPartition(TopicPartition(_TOPIC, 0), -1, offset, -1, 0, _MIB)
            fetch = FetchRequest(-1, 100, 1, _MIB, 0, 0, -1, [partition], [], "")
            body = request_header(1, 11, 1, "reader") + build_fetch(fetch, 11)
            await stream.send_all(_SIZE.pack(len(body)) + body)
            have = bytearray()
            while len(have) < 4 or len(have) < 4 + _SIZE.unpack_from(have)[0]:
                have += await stream.receive_some(_MIB)
            await trio.sleep(0.01)


async def cold(cluster: ProcessCluster, load: Load) -> None:
    """Readers of records that are only on the disk, while the disk has others to write."""
    await one_partition(cluster, _TOPIC)
    await one_partition(cluster, "other")
    host, port = cluster.address(1)
    pressure = Pressure(host, port, _TOPIC, load.connections, 128 * 1024, seconds=load.seconds / 2)
    async with pressing(pressure) as running:
        end = (await running.end(within_s=load.seconds + 60)).highest_offset + 1
    folders = [folder for n in cluster.brokers for folder in cluster.data_dirs(n)]
    await trio.to_thread.run_sync(_leave_memory, folders)
    offsets = list(range(0, end, max(1, end // 600)))
    Random(0).shuffle(offsets)
    async with pressing(Pressure(host, port, "other", load.connections, 128 * 1024)) as running:
        with trio.move_on_after(2 * load.seconds):
            async with trio.open_nursery() as nursery:
                for number in range(_READERS):
                    nursery.start_soon(_read, cluster.address(1), offsets[number::_READERS])
        outcome = await running.end()
    if not outcome.acked or outcome.errors or not end:
        raise BenchFailed(f"cold: {outcome.acked} acknowledged, {outcome.errors}")


def _leave_memory(folders: list[Path]) -> None:
    """Writes these logs and indexes to the disk, and drops them from the page cache."""
    for folder in folders:
        for path in folder.glob(f"{_TOPIC}-0/*"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def metadata_of_many(cluster: ProcessCluster, load: Load) -> None:
    """Clients ask for all metadata while partitions change, so that no answer stays cached."""
    await create(cluster, _TOPIC, load.partitions, 3)
    await until_led(cluster, load.partitions, set(cluster.brokers))

    async def ask_for_all(number: int) -> None:
        while True:
            await metadata(cluster.address(number), None, timeout_s=20)

    async with trio.open_nursery() as nursery:
        for number in cluster.brokers * 2:
            nursery.start_soon(ask_for_all, number)
        partitions = load.partitions
        with trio.move_on_after(load.seconds):
            while True:
                partitions += 1
                await grow_topic(cluster.direct_bootstrap, _TOPIC, partitions)
                await trio.sleep(0.3)
        nursery.cancel_scope.cancel()


async def creation(cluster: ProcessCluster, load: Load) -> None:
    """A topic of many partitions is created and deleted."""
    await create(cluster, _TOPIC, load.partitions, 3)
    await until_led(cluster, load.partitions, set(cluster.brokers))
    await trio.sleep(2)  # its followers' first fetches, checkpoints
    await delete_topic(cluster.direct_bootstrap, _TOPIC)
    await trio.sleep(2)  # its files


async def failover(cluster: ProcessCluster, load: Load) -> None:
    """The controller is killed: a new one reads and sends everything, twice."""
    total = 0
    for number in range(3):
        await create(cluster, f"{_TOPIC}-{number}", load.partitions, 3)
        total += load.partitions
    await until_led(cluster, total, set(cluster.brokers))
    await trio.sleep(2)
    controller = (await metadata(cluster.address(cluster.brokers[0]), [], 30)).controller_id
    await cluster.kill(broker(controller))
    await until_led(cluster, total, set(cluster.brokers) - {controller})
    await trio.sleep(2)
    await cluster.start(broker(controller), timeout_s=120)
    await until_led(cluster, total, set(cluster.brokers))
    await trio.sleep(load.seconds)  # it catches up, and rejoins every ISR


async def group(cluster: ProcessCluster, load: Load) -> None:
    """A group of many members: two rebalances, heartbeats, commits."""
    await create(cluster, _TOPIC, load.members, 3)
    await until_led(cluster, load.members, set(cluster.brokers))
    address = await _coordinator(cluster)
    members = [_Member(address, f"member-{n}") for n in range(load.members)]
    try:
        for member in members:
            # one by one: where the queue of a listener is full, a connection takes a second longer,
            # and misses the first generation, whose members no longer wait
            await member.connect()
        for again in (False, True):
            async with trio.open_nursery() as nursery:
                for member in members:
                    told = again and not member.leads
                    nursery.start_soon(member.join_when_told if told else member.join)
            end = trio.current_time() + load.seconds / 2
            # until then; no request is cancelled, because its connection would be lost
            while trio.current_time() < end:
                async with trio.open_nursery() as nursery:
                    for member in members:
                        nursery.start_soon(member.live)
                await trio.sleep(0.5)
    finally:
        for member in members:
            member.close()


async def _coordinator(cluster: ProcessCluster) -> tuple[str, int]:
    request = messages.FindCoordinatorRequest(key="steps", key_type=0)
    with trio.move_on_after(60):
        while True:
            answer = await ask(cluster.address(1), request, 2, 10)
            if answer.error_code == 0:
                return str(answer.host), int(answer.port)
            await trio.sleep(0.1)
    raise BenchFailed("no coordinator was found in a minute")


class _Member:
    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.address = address
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.connection: ClientConnection | None = None

    async def connect(self) -> None:
        self.connection = await ClientConnection.open(_NETWORK, *self.address, self.name)

    async def join(self) -> None:
        assert self.connection is not None, "connect first"
        join_class = messages.JoinGroupRequest
        while True:
            request = join_class(
                group_id="steps",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[join_class.JoinGroupRequestProtocol(name="range", metadata=b"x" * 100)],
            )
            joined = await self.connection.call(request, 5, 90)
            code = ErrorCode(joined.error_code)
            self.member_id, self.generation = joined.member_id, joined.generation_id
            self.leads = joined.leader == self.member_id
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if code is not ErrorCode.NONE:
                raise BenchFailed(f"{self.name} did not join: {code.name}")
            sync_class = messages.SyncGroupRequest
            mine = [
                sync_class.SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"y" * 100)
                for m in joined.members
            ]
            sync = sync_class(
                group_id="steps",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=None,
                assignments=mine,
            )
            synced = ErrorCode((await self.connection.call(sync, 3, 90)).error_code)
            if synced is ErrorCode.NONE:
                return
            if synced is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise BenchFailed(f"{self.name} got no assignment: {synced.name}")

    async def join_when_told(self) -> None:
        """Joins after the leader: a member that asks earlier gets the present generation, and no
        new one begins for it."""
        while await self._heartbeat() is not ErrorCode.REBALANCE_IN_PROGRESS:
            await trio.sleep(0.05)
        await self.join()

    async def _heartbeat(self) -> ErrorCode:
        assert self.connection is not None
        beat = messages.HeartbeatRequest(
            generation_id=self.generation,
            group_id="steps",
            member_id=self.member_id,
            group_instance_id=None,
        )
        return ErrorCode((await self.connection.call(beat, 3, 60)).error_code)

    async def live(self) -> None:
        """Sends a heartbeat, and commits an offset."""
        assert self.connection is not None
        await self._heartbeat()
        who = {"group_id": "steps", "member_id": self.member_id, "group_instance_id": None}
        topic = messages.OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=int(self.name.rpartition("-")[2]),
            committed_offset=1,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        commit = messages.OffsetCommitRequest(
            generation_id_or_member_epoch=self.generation,
            topics=[topic(name=_TOPIC, partitions=[partition])],
            **who,
        )
        await self.connection.call(commit, 7, 60)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


async def cleaning(cluster: ProcessCluster, load: Load) -> None:
    """A compacted topic of small segments, written during its cleaning."""
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    small = {"segment.bytes": "1048576", "retention.ms": "-1"}
    await one_partition(cluster, _TOPIC, {**compacted, **small})
    seed = 0
    with trio.move_on_after(max(load.seconds, 20)):  # the cleaner looks every few seconds
        while True:
            seed += 1
            keyed = Keyed(100_000, 20_000, seed=seed)
            await send(*cluster.address(1), TopicPartition(_TOPIC, 0), keyed)


async def recovery(cluster: ProcessCluster, load: Load) -> None:
    """A follower is killed under load and comes back: its logs are recovered and catch up."""
    await one_partition(cluster, _TOPIC)
    host, port = cluster.address(1)
    pressure = Pressure(host, port, _TOPIC, load.connections, 128 * 1024)
    async with pressing(pressure) as running:
        await trio.sleep(load.seconds / 2)
        await cluster.kill(broker(2))
        await trio.sleep(load.seconds / 2)
        await cluster.start(broker(2), timeout_s=120)
        await running.end()
        await until_in_sync(cluster.address(1), _TOPIC, 2, 90)


LOADS: Mapping[str, tuple[Callable[[Load], str], Drive]] = {
    "batches-16": (lambda _: "batches of 16 KiB", batches_16),
    "batches-128": (lambda _: "batches of 128 KiB", batches_128),
    "cold": (lambda _: "readers of what is on the disk alone", cold),
    "metadata": (lambda at: f"Metadata of {at.partitions} partitions", metadata_of_many),
    "creation": (lambda at: f"a topic of {at.partitions} partitions comes and goes", creation),
    "failover": (lambda at: f"controller killed, {3 * at.partitions} partitions", failover),
    "group": (lambda at: f"a group of {at.members} members", group),
    "cleaner": (lambda _: "a log being cleaned", cleaning),
    "recovery": (lambda _: "a follower killed under load comes back", recovery),
}
"""By name: the load's title in the table, and its function."""
