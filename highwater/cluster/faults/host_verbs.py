"""The verbs of a broker's host: `disk_full`, `slow_disk`, `clock_jump`."""

from __future__ import annotations

from collections.abc import Callable

import trio

from highwater.cluster.faults.done import Done, Effect
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Stage
from highwater.cluster.hosts import NO_DOOR
from highwater.cluster.interface import ClusterError, broker_number, require_running
from highwater.world.real.fault_door import FaultDoor


async def disk_full(stage: Stage, fault: Fault) -> Done:
    """Keeps a broker from writing anything more.  In Kafka the log directory then fails, and a
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
    hosts = stage.cluster.hosts
    door = None if hosts is None else hosts.door(broker_number(member))
    if door is None:
        why = stage.cluster.lacks.get(fault.name, NO_DOOR)
        raise ClusterError(f"{member} cannot be put through {fault.name}: {why}")
    return door


def _lasting(
    member: str,
    undo_name: str,
    *,
    met: Callable[[], int],
    end: Callable[[], None],
    told: Callable[[int], str],
    holds: Callable[[], bool],
) -> Done:
    """The result of a verb that acts through the broker's door; its effect is how often the broker
    met the fault, and is known only at its end."""
    before = met()

    async def undo() -> Effect:
        end()
        count = met() - before
        return told(count) if count else None

    return Done(
        member,
        None,
        undo_name,
        undo,
        effect_at_undo=True,
        felt=lambda: met() - before,
        holds=holds,
    )


async def slow_disk(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    door = _door(stage, fault, member)
    if door.write_us:
        raise ClusterError(f"the disk of {member} is slow already")
    wanted_us = int(float(fault.params["latency"]) * 1000)
    done = _lasting(
        member,
        "quicken_disk",
        met=lambda: door.slowed,
        end=lambda: door.slow_down(0),
        told=lambda count: f"{count} writes and flushes took {wanted_us / 1000:g} ms longer",
        holds=lambda: door.write_us == wanted_us,
    )
    door.slow_down(wanted_us)
    return done


async def clock_jump(stage: Stage, fault: Fault) -> Done:
    member = stage.target(fault)
    door = _door(stage, fault, member)
    if door.clock_ms:
        raise ClusterError(f"the clock of {member} is off already, by {door.clock_ms / 1000:g} s")
    wanted_ms = int(float(fault.params["by"]) * 1000)
    done = _lasting(
        member,
        "set_clock",
        met=lambda: door.clock_read,
        end=lambda: door.jump(0),
        told=lambda count: f"its clock was {wanted_ms / 1000:+g} s off {count} times",
        holds=lambda: door.clock_ms == wanted_ms,
    )
    door.jump(wanted_ms)
    return done
