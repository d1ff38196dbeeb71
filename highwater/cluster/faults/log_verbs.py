"""The verbs of a topic's logs: `roll`, `retain`, `compact`.  They make each broker work on its
replicas now, and it answers when the work is done (`broker/log/upkeep.py`)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Stage, at_once
from highwater.cluster.interface import ClusterError, broker
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.errors import ErrorCode
from highwater.world.real.network import RealNetwork

MAINTAIN_LOGS = 10_001
LONGEST_S = 60.0
ROLL, RETAIN, COMPACT = range(3)
ALL = -1


class Worked(NamedTuple):
    """One broker's replicas, summed up."""

    replicas: int
    changed: int
    size: int


async def _ask(address: tuple[str, int], work: int, topic: str, partition: int) -> Worked:
    """Makes one broker do the work; raises OSError, and ClusterError with the broker's message."""
    connection = await ClientConnection.open(
        RealNetwork(), *address, "highwater-harness", timeout_s=10.0
    )
    name = topic.encode()
    body = struct.pack(f">bh{len(name)}si", work, len(name), name, partition)
    try:
        answer = await connection.call_raw(MAINTAIN_LOGS, 0, [body], LONGEST_S)
    finally:
        connection.close()
    code, length = struct.unpack_from(">hh", answer)
    if code:
        raise ClusterError(bytes(answer[4 : 4 + length]).decode() or ErrorCode(code).name)
    rows = list(struct.iter_unpack(">iqqq", answer[8 + length :]))
    return Worked(len(rows), sum(row[1] for row in rows), sum(row[3] for row in rows))


async def _everywhere(stage: Stage, fault: Fault, work: int, told: str) -> Done:
    from highwater.cluster.leader_moves import reachable

    topic, partition = fault.target, ALL
    if stage.zookeeper.replicas and not any(tp.topic == topic for tp in stage.zookeeper.replicas):
        topic, _, text = fault.target.rpartition("-")
        partition = int(text)
    addresses = {broker(number): address for number, address in reachable(stage.cluster)}
    found: list[Worked] = []

    async def one(member: str) -> None:
        try:
            found.append(await _ask(addresses[member], work, topic, partition))
        except OSError as error:
            why = f"{error}; only Highwater's brokers can do it"
            raise ClusterError(f"{member} did not {fault.name} {topic}: {why}") from error

    await at_once(one, list(addresses))
    if not found:
        raise ClusterError(f"no broker runs that could {fault.name} {fault.target}")
    replicas, changed, size = (sum(column) for column in zip(*found, strict=True))
    if not replicas:
        raise ClusterError(f"no broker that runs has a replica of {fault.target}")
    return Done(fault.target, f"{changed} {told} on {replicas} replicas; {size} bytes stay")


async def roll(stage: Stage, fault: Fault) -> Done:
    return await _everywhere(stage, fault, ROLL, "segments began")


async def retain(stage: Stage, fault: Fault) -> Done:
    return await _everywhere(stage, fault, RETAIN, "segments went")


async def compact(stage: Stage, fault: Fault) -> Done:
    return await _everywhere(stage, fault, COMPACT, "bytes went")
