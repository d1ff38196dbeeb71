"""Rows for which a side has the machine for itself: starts, failovers, compaction; and reading."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import trio

from highwater.bench import compaction, control, failover
from highwater.bench.everything.measures import Samples
from highwater.bench.everything.rates import output
from highwater.bench.everything.turns import Turns, broker_pids, cpu_seconds
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Row
from highwater.bench.load import Load
from highwater.bench.loads import reading
from highwater.bench.loads.keyed import Keyed
from highwater.cluster.process_cluster import ProcessCluster

FEW = 100


async def consume(turns: Turns) -> Samples:
    """Reads what was just written, from the page cache; the brokers' CPU time is that of it."""

    async def one(cluster: ProcessCluster, topic: str) -> dict[str, float]:
        where, plan = cluster.direct_bootstrap, turns.plan
        load = Load(where, topic, 1000, 128 << 10, "1", 0, 6 * plan.seconds, plan.megabytes)
        written = json.loads(await output(load.command()))["records"]
        pids = broker_pids(cluster)
        before = cpu_seconds(pids)
        found = json.loads(await output(reading.command(where, topic, written)))
        used = cpu_seconds(pids) - before
        megabytes = found["records"] * 1000 / 1e6
        return {"consume": megabytes / found["seconds"], "consume-cpu": used * 1000 / megabytes}

    return await turns.in_turn(one, lambda found: found["consume"])


async def start(turns: Turns) -> Samples:
    """Each side in turn, alone: a start, an idle while, and topics of 100 and 1,000 partitions."""
    await turns.stop()
    samples: Samples = {}

    def add(line: str, index: int, *values: float) -> None:
        samples.setdefault(line, [[] for _ in turns.sides])[index].extend(values)

    for number in range(turns.plan.pairs):
        for index, side in enumerate(turns.sides):
            async with side.cluster(turns.plan.brokers) as cluster:
                add("start", index, side.ready_s[-1])
                add(f"create-{FEW}", index, await _created(cluster, "few", FEW, FEW))
                await trio.sleep(2)  # by then followers have caught up
                add("idle-cpu", index, await _idle_cpu(cluster, turns.plan.idle_s))
                many = turns.plan.partitions
                took = await _created(cluster, "many", many, FEW + many)
                add("create-1000", index, took)
                add("memory-partitions", index, *map(pss_mib, broker_pids(cluster)))
            turns.progress(f"start {number + 1}: {side.name} {side.ready_s[-1]:.1f} s")
    return samples


async def _created(cluster: ProcessCluster, topic: str, partitions: int, in_all: int) -> float:
    began = time.monotonic()
    await control.create(cluster, topic, partitions, 3)
    await control.until_led(cluster, in_all, set(cluster.brokers))
    return time.monotonic() - began


async def _idle_cpu(cluster: ProcessCluster, seconds: float) -> float:
    """Milliseconds of CPU that the brokers use in a second."""
    pids = broker_pids(cluster)
    before, began = cpu_seconds(pids), time.monotonic()
    await trio.sleep(seconds)
    return (cpu_seconds(pids) - before) * 1000 / (time.monotonic() - began)


async def failovers(turns: Turns) -> Samples:
    """Kills of a leader, under librdkafka with its defaults."""
    await turns.stop()
    plan = failover.Plan(
        turns.plan.kills, turns.plan.their_kills, ("librdkafka",), (failover.LEADER,)
    )
    sides = [replace(side, folder=side.folder / "failover") for side in turns.sides]
    median, worst, *_ = await failover.run(plan, sides, turns.progress)
    return {"failover-median": _seconds(median), "failover-worst": _seconds(worst)}


def _seconds(row: Row) -> list[list[float]]:
    return [[ms / 1000 for ms in side] for side in (row.ours, row.theirs) if side]


async def compacted(turns: Turns) -> Samples:
    """One round of `highwater bench compaction`, of a hundred records a key."""
    await turns.stop()
    records = turns.plan.compacted
    segment_bytes = (64 if records > 1_000_000 else 1) << 20
    plan = compaction.Plan(Keyed(records, records // 100), segment_bytes, 1)
    sides = [replace(side, folder=side.folder / "compaction") for side in turns.sides]
    first = (await compaction.run(plan, sides, turns.progress))[0]
    return {"compaction": [list(side) for side in (first.ours, first.theirs) if side]}
