"""`highwater bench produce`: three brokers, RF 3, librdkafka, Highwater and Apache Kafka in turn.

Theory of operation.  Each side is a cluster of the process runtime in a folder of its own, with
Kafka's own defaults (the profile `kafka`).  First each side is started and stopped some times
alone, for the time to ready.  Then both stay up.  Their brokers' memory is read while they idle.
For each batch size the load goes to one side and then to the other, each time to a new topic.  The
topic is deleted afterwards, and the next load waits until its files are gone, because otherwise one
side's data fills the memory that the other side's page cache needs.

A plan may name several protocols for the clients' listener.  Each has clusters of its own, one
after another, with the certificates, users and access rules of `highwater up --secure`; topics are
made and deleted on the listener without security, and only the load speaks the protocol.

A load ends after so many megabytes, the same for both sides and few enough for the page cache. Once
the kernel begins to write back (when a tenth of the memory is dirty, by default), the disk would be
measured, and the faster side gets there first.  If that still happens, the progress says so. Free
memory is made page cache before each load (see `warm_memory`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Row
from highwater.bench.figures.sides import BenchFailed, Progress, Side
from highwater.bench.figures.warm_memory import WarmMemory
from highwater.bench.load import Load, Measured
from highwater.bench.loads.bench_topics import create_topic, delete_topic, until_gone
from highwater.bench.loads.load_process import ended
from highwater.cluster.client_files import client_settings
from highwater.cluster.processes.process_cluster import ProcessCluster

KIB = 1024
SECURITIES = ("plaintext", "ssl", "sasl_ssl")
BATCHES = (16 * KIB, 128 * KIB, 1024 * KIB)


@dataclass(frozen=True, slots=True)
class Plan:
    batches: tuple[int, ...] = BATCHES
    securities: tuple[str, ...] = SECURITIES[:1]
    record_bytes: int = 1000
    acks: str = "all"
    partitions: int = 3
    brokers: int = 3
    rounds: int = 5
    measure_mb: float = 400
    measure_s: float = 10
    warm_up_s: float = 0.3
    starts: int = 3
    idle_s: float = 5


async def run(plan: Plan, sides: Sequence[Side], progress: Progress) -> list[Row]:
    """The measured rows; the first side is Highwater's."""
    for number in range(plan.starts - 1):
        for side in sides:
            progress(f"start {number + 1} of {plan.starts}: {side.name}")
            async with side.cluster(plan.brokers):
                pass
    with WarmMemory(sides[0].folder, progress) as warm:
        for number, security in enumerate(plan.securities):
            await _with(security, plan, sides, warm, progress, idle=number == 0)
    return _rows(plan, sides)


async def _with(
    security: str,
    plan: Plan,
    sides: Sequence[Side],
    warm: WarmMemory,
    progress: Progress,
    *,
    idle: bool,
) -> None:
    """Both sides with clients that speak this protocol; the first ones' memory is read, too."""
    async with AsyncExitStack() as stack:
        clusters: list[tuple[Side, ProcessCluster]] = []
        for side in sides:
            which = f"start {plan.starts} of {plan.starts}" if idle else "another start"
            progress(f"{which}: {side.name}, {security}")
            started = side.cluster(plan.brokers, security=security)
            clusters.append((side, await stack.enter_async_context(started)))
            if not idle:
                side.ready_s.pop()  # the row is that of the first protocol
        if idle:
            progress(f"idle for {plan.idle_s:g} s")
            await trio.sleep(plan.idle_s)
            for side, cluster in clusters:
                side.memory_mib = [pss_mib(cluster.pid(f"broker-{n}")) for n in cluster.brokers]
        for batch in plan.batches:
            for number in range(plan.rounds):
                for side, cluster in clusters:
                    topic = f"bench-{batch // KIB}-{number}"
                    await trio.to_thread.run_sync(warm.fill)
                    before = _written_back_mb()
                    rate = await _measure(plan, cluster, topic, batch)
                    written = _written_back_mb() - before
                    side.mb_per_s.setdefault((security, batch), []).append(rate)
                    progress(
                        f"{security}, {batch // KIB} KiB batches, round {number + 1} of"
                        f" {plan.rounds}: {side.name} {rate:.1f} MB/s"
                        + (f"; {written:.0f} MB went to the disk meanwhile" if written > 50 else "")
                    )


async def _measure(plan: Plan, cluster: ProcessCluster, topic: str, batch: int) -> float:
    bootstrap = cluster.direct_bootstrap
    replicas = min(3, plan.brokers)
    config = {"min.insync.replicas": str(min(2, replicas)), "file.delete.delay.ms": "1000"}
    await trio.to_thread.run_sync(create_topic, bootstrap, topic, plan.partitions, replicas, config)
    security = cluster.settings.security
    clients = client_settings(cluster.folder / "secure", cluster.bootstrap, security)
    load = Load(
        bootstrap=clients.pop("bootstrap.servers"),
        settings=clients,
        topic=topic,
        record_bytes=plan.record_bytes,
        batch_bytes=batch,
        acks=plan.acks,
        warm_up_s=plan.warm_up_s,
        measure_s=plan.measure_s,
        measure_mb=plan.measure_mb,
    )
    done = await ended(load.command())
    if done.returncode != 0:
        raise BenchFailed(_last_line(done))
    measured = Measured(**json.loads(done.stdout))
    await trio.to_thread.run_sync(delete_topic, bootstrap, topic)
    await until_gone(cluster.folder, topic)
    return measured.mb_per_s(plan.record_bytes)


def _spoken(security: str) -> str:
    return "" if security == "plaintext" else f", {security.upper()}"


def _written_back_mb() -> float:
    """The megabytes that the kernel has written to disks since its start; 0 where unknown."""
    try:
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except OSError:
        return 0.0
    return int(counters["nr_written"]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the load ended with exit code {done.returncode}"


def _rows(plan: Plan, sides: Sequence[Side]) -> list[Row]:
    ours = sides[0]
    theirs = sides[1] if len(sides) > 1 else None
    what = f"produce acks={plan.acks}, {plan.brokers} brokers, RF {min(3, plan.brokers)}"
    rows = [
        Row(
            f"{what}{_spoken(security)}, {batch // KIB} KiB batches",
            "MB/s",
            tuple(ours.mb_per_s[security, batch]),
            tuple(theirs.mb_per_s[security, batch]) if theirs else (),
        )
        for security in plan.securities
        for batch in plan.batches
    ]
    rows.append(
        Row(
            "memory of an idle broker",
            "MiB PSS",
            tuple(ours.memory_mib),
            tuple(theirs.memory_mib) if theirs else (),
            smaller_is_better=True,
        )
    )
    rows.append(
        Row(
            f"ZooKeeper and {plan.brokers} brokers to ready",
            "s",
            tuple(ours.ready_s),
            tuple(theirs.ready_s) if theirs else (),
            smaller_is_better=True,
        )
    )
    return rows
