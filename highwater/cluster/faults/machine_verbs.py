"""The verbs of a broker's machine: `disk_full`, `slow_disk`, `clock_jump`."""

from __future__ import annotations

import trio

from highwater.cluster.faults.done import Done, Effect
from highwater.cluster.faults.model import Fault
from highwater.cluster.faults.stage import Stage
from highwater.cluster.interface import ClusterError, broker_number, require_running
from highwater.cluster.machines import NO_DOOR
from highwater.world.real.fault_door import FaultDoor


async def disk_full(stage: Stage, fault: Fault) -> Done:
    """Lets a broker write nothing more.  Kafka's answer is that the log directory fails, and that a
    broker without any directory halts."""
    member = stage.target(fault)
    require_running(stage.cluster, member)
    number = broker_number(member)
    led = stage.zookeeper.led_by(number)
    began = trio.current_time()
    code = await stage.cluster.fill_disk(member)
    stage.down.add(member)
    stage.died(number, led)

    async def start() -> Effect:
        began = trio.current_time()
        await stage.cluster.start(member)
        stage.down.discard(member)
        return f"serves after {trio.current_time() - began:.1f} s"

    told = ", ".join(map(str, led)) or "nothing"
    after = f"{trio.current_time() - began:.1f} s"
    return Done(
        member,
        f"halted with code {code} after {after}: it could write no more, leading {told}",
        "start",
        start,
        holds=lambda: not stage.cluster.running(member),
    )


def _door(stage: Stage, fault: Fault, member: str) -> FaultDoor:
    require_running(stage.cluster, member)
    machines = stage.cluster.machines
    door = None if machines is None else machines.door(broker_number(member))
    if door is None:
        why = stage.cluster.lacks.get(fault.name, NO_DOOR)
        raise ClusterError(f"{member} cannot be put through {fault.name}: {why}")
    return door


async def slow_disk(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    door = _door(stage, fault, member)
    if door.write_us:
        raise ClusterError(f"the disk of {member} is slow already")
    before = door.slowed
    wanted_us = int(float(fault.params["latency"]) * 1000)
    door.slow_down(wanted_us)

    async def undo() -> Effect:
        door.slow_down(0)
        count = door.slowed - before
        return f"{count} writes and flushes took {wanted_us / 1000:g} ms longer" if count else None

    return Done(
        member,
        None,
        "quicken_disk",
        undo,
        effect_at_undo=True,
        felt=lambda: door.slowed - before,
        holds=lambda: door.write_us == wanted_us,
    )


async def clock_jump(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    door = _door(stage, fault, member)
    if door.clock_ms:
        raise ClusterError(f"the clock of {member} is off already, by {door.clock_ms / 1000:g} s")
    before = door.clock_read
    wanted_ms = int(float(fault.params["by"]) * 1000)
    door.jump(wanted_ms)

    async def undo() -> Effect:
        door.jump(0)
        count = door.clock_read - before
        return f"its clock was {wanted_ms / 1000:+g} s off {count} times" if count else None

    return Done(
        member,
        None,
        "set_clock",
        undo,
        effect_at_undo=True,
        felt=lambda: door.clock_read - before,
        holds=lambda: door.clock_ms == wanted_ms,
    )
