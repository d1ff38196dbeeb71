"""Faults of disks: a full disk, a broken one, a single call that fails, and power lost during an
fsync or with a small file half written.

A broker that met such an error may not go on with that directory.  Kafka takes it offline, and a
broker whose last directory is offline halts (`ReplicaManager.handleLogDirFailure`).  R13 demands
this of the life that met the error, for that directory; if no broker met one, there was nothing to
break.  A sendfile that fails costs only its connection (`Processor.poll`).
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import trio

from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.simulation.cluster import DATA
from highwater.simulation.faults.directory_faults import goes_offline, met_since, start_anew
from highwater.simulation.faults.staged_faults import Fault, NothingToBreak
from highwater.world.sim.disk import Met
from highwater.world.sim.failing_call import FailingCall
from highwater.world.sim.next_sync import NextSync

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.cluster import BrokerNode, SimCluster
    from highwater.world.chance import Random
    from highwater.world.sim.process import Process

WEIGHTS = {"failing call": 8, "power loss in a flush": 6, "full disk": 3, "torn file": 5}
"""The weights of the faults that `sim --disk-errors` adds to those of every run."""
PATIENCE_S = 8.0
"""How long to wait for a call that may never come about."""


class Call(NamedTuple):
    """A call that brokers make, on which files, and whether only a start is sure to make it."""

    name: str
    suffix: str
    at_start: bool = False

    def __str__(self) -> str:
        return f"failing {self.name} of *{self.suffix}{' at a start' * self.at_start}"


CALLS = (
    Call("append", ".log"), Call("append", ".log"), Call("append", "index"),
    Call("append", "checkpoint"), Call("append", ".snapshot"),
    Call("flush", ".log"), Call("flush", "index"), Call("flush", "checkpoint"), Call("sync", ""),
    Call("truncate", ".log"),
    Call("rename", "checkpoint"), Call("rename", ".snapshot"), Call("rename", "-delete"),
    Call("remove", "-delete"),
    Call("open", ".log"), Call("open", "index"),
    Call("read", ".log"), Call("read", ".log", at_start=True), Call("read", "index", at_start=True),
    Call("read", "checkpoint", at_start=True), Call("read", ".snapshot", at_start=True),
    Call("send", ".log"),
)  # fmt: skip
LOADS = Call("load", ""), Call("load to send", ".log")
"""These calls come only from brokers whose reads wait for the disk."""
TAKEOVER = Call("read", ".log of a coordinator")
"""A broker takes over the coordinator of groups or transactions, and loads its log."""

FLUSHED = (".log", "index", "checkpoint")
"""Kinds of files: the broker waits for an fsync of each of them."""
TORN = ("checkpoint", "checkpoint", ".snapshot", ".snapshot", ".index", ".timeindex", ".txnindex")
"""Kinds of files that a power loss may tear: they are replaced or written without an fsync."""


def in_a_flush(suffix: str) -> str:
    return f"power loss in a flush of *{suffix}"


def torn(suffix: str) -> str:
    return f"torn *{suffix}"


class DiskFaults:
    """The verbs of `Faults` for disks."""

    def __init__(
        self,
        cluster: SimCluster,
        random: Random,
        lose_power: Callable[[Fault, BrokerNode], Awaitable[None]],
        done: Counter[str],
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._lose_power = lose_power
        self._done = done

    async def full_disk(self, fault: Fault, node: BrokerNode) -> None:
        disk, life = node.host.disk, self._life(node)
        if disk.capacity is not None:
            raise NothingToBreak(f"the disk of {node.name} is full")
        since, disk.capacity = len(disk.met), disk.used + self._random.randrange(1, 2000)

        def refused() -> Met | None:
            return met_since(node, since, number=errno.ENOSPC)

        deadline = trio.current_time() + max(fault.seconds, 2.0)
        while life.alive and not refused() and trio.current_time() < deadline:
            await trio.sleep(0.05)
        met = refused()
        if met is not None:
            why = f"its disk was full, and it wrote {met.path}"
            await goes_offline(self._cluster, node, met, why)
        disk.capacity = None
        if met is None:
            raise NothingToBreak(f"{node.name} wrote too little to fill its disk")
        await trio.sleep(fault.seconds)
        start_anew(self._cluster, node)

    async def failing_disk(self, fault: Fault, node: BrokerNode) -> None:
        disk = node.host.disk
        if disk.broken:
            raise NothingToBreak(f"the disk of {node.name} fails")
        self._life(node)
        since = len(disk.met)
        disk.broken[DATA] = errno.EIO
        await trio.sleep(fault.seconds)
        disk.broken.clear()
        met = met_since(node, since)
        if met is not None:
            await goes_offline(self._cluster, node, met, f"it met an error of {met.path}")
        start_anew(self._cluster, node)
        if met is None:
            raise NothingToBreak(f"{node.name} did not touch its disk")

    async def failing_call(self, fault: Fault, node: BrokerNode) -> None:
        """Makes one call fail (an append after some bytes); then the disk works again."""
        random = self._random
        led = self._coordinators()
        calls = (*CALLS, *LOADS) if node.host.disk.cold else CALLS
        call = random.choice((*calls, TAKEOVER, TAKEOVER, TAKEOVER) if led else calls)
        if call == TAKEOVER:
            await self._fail_a_takeover(fault, *random.choice(led))
            return
        failing = FailingCall(
            call.name,
            random.choice((DATA, *self._cluster.shape.more_log_dirs)),
            call.suffix,
            random.choice((0.0, 0.5, 0.99, 1.0)),
        )
        if call.name == "append":
            failing.number = random.choice((errno.EIO, errno.EIO, errno.ENOSPC))
            failing.cut = random.random() < 0.3
        await self.fail_one(call, failing, node)
        await trio.sleep(fault.seconds)
        start_anew(self._cluster, node)

    def _coordinators(self) -> list[tuple[TopicPartition, BrokerNode, BrokerNode]]:
        """(partition of coordinators, its leader, a broker that may lead it next)"""
        nodes, found = self._cluster.nodes, []
        for tp, truth in sorted(self._cluster.rules.partitions.items()):
            if tp.topic in INTERNAL_TOPICS and truth.state is not None:
                leader = nodes.get(truth.state.leader)
                others = [nodes[b] for b in truth.state.isr if b != truth.state.leader]
                if leader is not None and leader.running and others and others[0].running:
                    found.append((tp, leader, others[0]))
        return found

    async def _fail_a_takeover(
        self, fault: Fault, tp: TopicPartition, leader: BrokerNode, node: BrokerNode
    ) -> None:
        services = node.services
        log = services.logs.get(tp) if services is not None else None
        if log is None or node.host.disk.failing is not None:
            raise NothingToBreak(f"{node.name} has no {tp}")
        self._cluster.kill(leader.id)
        try:
            await self.fail_one(TAKEOVER, FailingCall("read", f"{log.dir}/", ".log"), node)
            await trio.sleep(fault.seconds)
        finally:
            self._cluster.start(leader.id)
        start_anew(self._cluster, node)

    async def fail_one(self, call: Call, failing: FailingCall, node: BrokerNode) -> None:
        """Waits until this call has failed, and the broker has taken the consequences."""
        disk = node.host.disk
        self._life(node)
        if disk.failing is not None:
            raise NothingToBreak(f"a call of {node.name} is to fail already")
        disk.failing = failing
        if call.at_start:
            self._cluster.kill(node.id)
            await trio.sleep(0.01)
            self._cluster.start(node.id)
        with trio.move_on_after(PATIENCE_S):
            await failing.struck.wait()
        disk.failing = None
        if failing.process is None:
            raise NothingToBreak(f"{node.name} made no call {call.name} on *{call.suffix}")
        self._done[str(call)] += 1
        if call.name in ("send", "load to send"):
            return  # it costs only the connection, as in Kafka
        why = f"a call {call.name} failed on {failing.path}"
        met = Met(failing.process, failing.path, failing.number)
        await goes_offline(self._cluster, node, met, why)

    async def power_loss_in_a_flush(self, fault: Fault, node: BrokerNode) -> None:
        """Takes the power during an fsync: at a roll, of a checkpoint, or of a batch."""
        suffix = self._random.choice(FLUSHED)
        await self._lose_power_in_a_sync(suffix, fault, node)
        self._done[in_a_flush(suffix)] += 1

    async def _lose_power_in_a_sync(
        self,
        suffix: str,
        fault: Fault,
        node: BrokerNode,
        ready: Callable[[], object] = lambda: True,
    ) -> None:
        """Takes the power during an fsync of such a file; waits for a later one while it is not
        `ready`, or power must not be lost yet."""
        deadline = trio.current_time() + PATIENCE_S
        while True:
            sync = await self._in_a_sync(suffix, node)
            await trio.sleep(self._random.random() * sync.lasts_s)
            if not sync.under_way:
                raise NothingToBreak(f"{node.name} is down, and flushes nothing any more")
            late = trio.current_time() > deadline
            if not ready():
                if late:
                    raise NothingToBreak(f"{node.name} had nothing but that to flush")
                continue
            try:
                return await self._lose_power(fault, node)
            except NothingToBreak:
                if late:
                    raise

    async def _in_a_sync(self, suffix: str, node: BrokerNode) -> NextSync:
        """Waits until an fsync of such a file begins."""
        disk, sync = node.host.disk, NextSync(suffix)
        self._life(node)
        if disk.next_sync is not None:
            raise NothingToBreak(f"another fault waits for {node.name} to flush a file")
        disk.next_sync = sync
        with trio.move_on_after(PATIENCE_S):
            await sync.begun.wait()
        disk.next_sync = None
        if not sync.begun.is_set():
            raise NothingToBreak(f"{node.name} flushed no *{suffix}")
        return sync

    async def torn_file(self, fault: Fault, node: BrokerNode) -> None:
        """Takes the power when a small file is not yet on the disk, so that only a part of it
        stays.  An index is written at a roll, before the fsync of its log begins."""
        disk, suffix = node.host.disk, self._random.choice(TORN)
        self._life(node)
        before, disk.tear = len(disk.torn), suffix
        try:
            if suffix.endswith("index"):
                await self._lose_power_in_a_sync(".log", fault, node, disk.tearable)
            else:
                with trio.move_on_after(PATIENCE_S):
                    while not disk.tearable():
                        await trio.sleep(0.05)
                if disk.tearable():
                    await self._lose_power(fault, node)
        finally:
            disk.tear = ""
        if len(disk.torn) == before:
            raise NothingToBreak(f"every *{suffix} of {node.name} was on its disk")
        self._done[torn(suffix)] += 1

    def _life(self, node: BrokerNode) -> Process:
        if not node.running or node.world is None:
            raise NothingToBreak(f"{node.name} is down")
        return node.world.process
