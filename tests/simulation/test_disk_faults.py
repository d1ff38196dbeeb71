"""A simulated disk that is full, or that answers every call with an I/O error, under load.

The broker halts, is started again and refused until the disk is well; the rules watch, and
acknowledged records are there at the end.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import Record, build_batch
from highwater.simulation.cluster import DATA, PORT, BrokerNode, Shape, SimCluster
from highwater.simulation.faults import disk_faults
from highwater.simulation.faults.disk_faults import (
    CALLS,
    FLUSHED,
    LOADS,
    TORN,
    WEIGHTS,
    Call,
    DiskFaults,
    in_a_flush,
    torn,
)
from highwater.simulation.faults.staged_faults import Fault
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.world.sim import Kernel, run_simulation
from highwater.world.sim.disk import SimDisk
from highwater.world.sim.failing_call import FailingCall

BRIEF = TopicPartition("brief", 0)
TPS = [TopicPartition("safe", p) for p in range(3)]
Change = Callable[[SimDisk], None]


def fill(disk: SimDisk) -> None:
    disk.capacity = disk.used + 300  # so that the next batches, or a part of one, still fit


def fail(disk: SimDisk) -> None:
    disk.broken[DATA] = errno.EIO


def heal(disk: SimDisk) -> None:
    disk.capacity = None
    disk.broken.clear()


class Scenario:
    """Five seconds of load, ten with a broken disk under one broker, five more."""

    def __init__(self, break_disk: Change) -> None:
        self.break_disk = break_disk
        self.acked: dict[tuple[TopicPartition, int], bytes] = {}
        self.deaths: list[str] = []
        self.cut_reads = 0
        """Reads whose connection ended."""

    async def main(self, kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Shape(), nursery)
            await self.run(cluster)
            assert cluster.rules.violation is None, str(cluster.rules.violation)
            self.deaths = [e for e in cluster.trace.last(100_000) if "died: " in e]
            nursery.cancel_scope.cancel()

    async def run(self, cluster: SimCluster) -> None:
        await begun(cluster)
        async with trio.open_nursery() as load:
            for tp in TPS:
                producer = client(cluster, f"producer-{tp.partition}")
                load.start_soon(producer.run, partial(self.produce, producer, tp))
            await trio.sleep(5)
            disk = self.disk = cluster.nodes[2].host.disk
            self.break_disk(disk)
            before = len(self.acked)
            await trio.sleep(10)
            assert len(self.acked) > before + 100, "the others do not go on"
            heal(disk)
            await trio.sleep(5)
            load.cancel_scope.cancel()
        await whole(cluster)
        for tp in TPS:
            await self.check(client(cluster, f"reader-{tp.partition}"), tp)

    async def produce(self, producer: SimClient, tp: TopicPartition) -> None:
        sent = 0
        while True:
            sent += 1
            value = b"%d of %d" % (sent, tp.partition)
            try:
                offset = await producer.produce(
                    tp, bytes(build_batch([Record(None, value, sent)])), -1
                )
                self.acked[tp, offset] = value
            except Failed:
                producer.forget(tp)
            await producer.pause(0.02, 0.06)

    async def check(self, reader: SimClient, tp: TopicPartition) -> None:
        wanted = {offset: value for (at, offset), value in self.acked.items() if at == tp}
        found: dict[int, bytes] = {}
        position = 0
        while position <= max(wanted):
            try:
                polled = await reader.fetch(tp, position)
            except Failed:
                self.cut_reads += 1
                assert self.cut_reads == 1
                reader.forget(tp)
                continue
            found.update({offset: value for offset, _, value in polled.records})
            position = polled.next_offset
        assert {offset: found.get(offset) for offset in wanted} == wanted


def client(cluster: SimCluster, name: str) -> SimClient:
    world = cluster.simulation.start(cluster.simulation.add_host(name))
    return SimClient(world, name, [(node.name, PORT) for node in cluster.nodes.values()])


async def whole(cluster: SimCluster) -> None:
    with trio.move_on_after(60):
        while cluster.whole() is not None:
            await trio.sleep(0.1)
    assert cluster.whole() is None


async def begun(cluster: SimCluster) -> SimClient:
    """Starts all brokers and makes the topic; gives the client that made it."""
    for broker_id in cluster.nodes:
        cluster.start(broker_id)
    await whole(cluster)
    admin = client(cluster, "admin")
    await admin.create_topic("safe", len(TPS), 3)
    await whole(cluster)
    return admin


@pytest.mark.parametrize(
    ("break_disk", "words"), [(fill, "No space left on device"), (fail, "Input/output error")]
)
@pytest.mark.parametrize("seed", range(2))
def test_a_broken_disk_costs_one_broker_and_no_record(
    seed: int, break_disk: Change, words: str
) -> None:
    scenario = Scenario(break_disk)
    run_simulation(seed, scenario.main)
    halted, *again = scenario.deaths
    assert f"HaltError('no log directory is left ({DATA}: {words})" in halted
    assert again, "it went on with a broken disk"
    for line in scenario.deaths:
        assert "broker-2" in line
        assert f"Error('no log directory is left ({DATA}: {words})" in line


def once(call: str, suffix: str = "", share: float = 0.0) -> Change:
    def change(disk: SimDisk) -> None:
        disk.failing = FailingCall(call, DATA, suffix, share)

    return change


@pytest.mark.parametrize(
    "break_disk", [once("append", ".log", 0.5), once("flush")], ids=["half an append", "flush"]
)
def test_one_call_that_fails_halts_the_broker_and_costs_no_record(break_disk: Change) -> None:
    scenario = Scenario(break_disk)
    run_simulation(0, scenario.main)
    (halted,) = scenario.deaths
    assert f"HaltError('no log directory is left ({DATA}: Input/output error)" in halted


def test_a_sendfile_that_fails_costs_its_connection_alone() -> None:
    scenario = Scenario(once("send"))
    run_simulation(0, scenario.main)
    assert scenario.deaths == []
    assert scenario.disk.failing is None, "nothing was sent"
    assert scenario.cut_reads == 1, "followers are sent what was just written, from memory"


def test_seeds_meet_calls_that_fail() -> None:
    outcome = simulate(4, Options(seconds=12, pace=0.15, disk_errors=True))
    assert outcome.ok, outcome.violation
    assert set(WEIGHTS) & set(outcome.faults), outcome.faults


class OneCall(Scenario):
    """Load with short segments, topics that come and go, a leader that was cut off and comes back,
    and one failing call of its disk."""

    def __init__(self, call: Call) -> None:
        super().__init__(lambda disk: None)
        self.call = call
        self.done = Counter[str]()

    async def main(self, kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Shape(segment_bytes=1024), nursery)
            await self.run(cluster)
            assert cluster.rules.violation is None, str(cluster.rules.violation)
            nursery.cancel_scope.cancel()

    async def run(self, cluster: SimCluster) -> None:
        admin = await begun(cluster)
        async with trio.open_nursery() as load:
            for tp in TPS:
                producer = client(cluster, f"producer-{tp.partition}")
                load.start_soon(producer.run, partial(self.produce, producer, tp))
            load.start_soon(self.look_back, client(cluster, "reader"))
            load.start_soon(self.come_and_go, admin)
            node = cluster.nodes[2]
            await trio.sleep(3)
            await self.strike(cluster, node)
            load.cancel_scope.cancel()

    async def strike(self, cluster: SimCluster, node: BrokerNode) -> None:
        node.host.disk.cold = 1.0 if self.call in LOADS else 0.0
        if self.call == Call("truncate", ".log"):
            await self.diverge(cluster, node)
        faults = DiskFaults(cluster, cluster.kernel.random("fault"), no_power, self.done)
        failing = FailingCall(self.call.name, DATA, self.call.suffix, 0.5)
        await faults.fail_one(self.call, failing, node)

    async def diverge(self, cluster: SimCluster, node: BrokerNode) -> None:
        """Its clients still reach it, so it appends what no other broker has."""
        fabric, others = cluster.simulation.fabric, [n.host for n in cluster.nodes.values()]
        for other in (*others, cluster.simulation.zookeeper.host):
            if other is not node.host:
                fabric.cut(node.host, other)
                fabric.cut(other, node.host)
        await trio.sleep(9)
        fabric.heal_all()

    async def look_back(self, reader: SimClient) -> None:
        while True:
            for position in range(0, 1000, 7):
                with suppress(Failed):
                    await reader.fetch(TPS[position % 3], position)
                await trio.sleep(0.05)

    async def come_and_go(self, admin: SimClient) -> None:
        while True:
            with suppress(Failed):
                await admin.create_topic("brief", 1, 3)
                await admin.produce(BRIEF, bytes(build_batch([Record(None, b"x", 1)])), 1)
            await trio.sleep(1)
            with suppress(Failed):
                await admin.delete_topic("brief")
            await trio.sleep(1)


class OneTorn(OneCall):
    """Power is lost while such a file is not on the disk."""

    def __init__(self, suffix: str) -> None:
        super().__init__(CALLS[0])
        self.suffix = suffix

    async def strike(self, cluster: SimCluster, node: BrokerNode) -> None:
        async def lose_power(fault: Fault, node: BrokerNode) -> None:
            cluster.power_loss(node.id)
            await trio.sleep(1)
            cluster.power_on(node.id)

        faults = DiskFaults(cluster, cluster.kernel.random("fault"), lose_power, self.done)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk_faults, "TORN", (self.suffix,))
            await faults.torn_file(Fault(0, "", "any", 1.0), node)
        await whole(cluster)


class OneFlush(OneCall):
    """Power is lost in the middle of a flush of such a file."""

    def __init__(self, suffix: str) -> None:
        super().__init__(CALLS[0])
        self.suffix = suffix

    async def strike(self, cluster: SimCluster, node: BrokerNode) -> None:
        disk, random = node.host.disk, cluster.kernel.random("fault")

        async def lose_power(fault: Fault, node: BrokerNode) -> None:
            syncing = [path for path, inode in disk.files() if inode.is_syncing]
            assert any(self.suffix in path for path in syncing)
            cluster.power_loss(node.id)

        faults = DiskFaults(cluster, random, lose_power, self.done)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk_faults, "FLUSHED", (self.suffix,))
            await faults.power_loss_in_a_flush(Fault(0, "", "any", 1.0), node)


async def no_power(fault: object, node: object) -> None:
    raise AssertionError


@pytest.mark.parametrize("call", [*dict.fromkeys(CALLS), *LOADS], ids=str)
def test_every_call_of_the_table_comes_about_and_costs_the_directory(call: Call) -> None:
    scenario = OneCall(call)
    run_simulation(0, scenario.main)
    assert scenario.done == {str(call): 1}


@pytest.mark.parametrize("suffix", sorted({*TORN} - {".txnindex"}))
def test_a_file_that_is_torn_costs_no_more_than_its_records(suffix: str) -> None:
    scenario = OneTorn(suffix)
    run_simulation(0, scenario.main)
    assert scenario.done == {torn(suffix): 1}


@pytest.mark.parametrize("suffix", FLUSHED)
def test_power_is_lost_while_such_a_file_is_flushed(suffix: str) -> None:
    scenario = OneFlush(suffix)
    run_simulation(0, scenario.main)
    assert scenario.done == {in_a_flush(suffix): 1}
