"""`highwater bench produce`: three brokers, RF 3, librdkafka, Highwater and Apache Kafka in turn.

Theory of operation.  Each side is a cluster of the process runtime in a folder of its own, with
Kafka's own defaults (the profile `kafka`).  First each side is started and stopped some times
alone, for the time to ready.  Then both stay up.  Their brokers' memory is read while they idle.
For each batch size the load goes to one side and then to the other, each time to a new topic, as in
the rows of `highwater bench all` (`turns`), but neither side is warmed up.

Several protocols may be named for the clients' listener.  Each has clusters of its own, one after
another, with the certificates, users and access rules of `highwater up --secure`; topics are made
and deleted on the listener without security, and only the load speaks the protocol.

A load ends after so many megabytes, the same for both sides and few enough for the page cache. Once
the kernel begins to write back (when a tenth of the memory is dirty, by default), the disk would be
measured, and the faster side gets there first.  If that still happens, the progress says so.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

import trio

from highwater.bench.benchmark import option
from highwater.bench.everything.rate_rows import KIB, produced
from highwater.bench.everything.turns import Once, Plan, Turns, broker_pids
from highwater.bench.figures.memory import pss_mib
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import Sides
from highwater.bench.load import Load
from highwater.cluster.client_files import client_settings
from highwater.cluster.processes.process_cluster import ProcessCluster

SECURITIES = ("plaintext", "ssl", "sasl_ssl")
IDLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    batches: tuple[int, ...] = option(
        (16, 128, 1024), "Batch size.", flag="--batch-kib", least=1, most=4000
    )
    record_bytes: int = option(1000, least=1, most=1_000_000)
    acks: str = option("all", of=("all", "1", "0"))
    securities: tuple[str, ...] = option(
        SECURITIES[:1], "What the clients speak, on both sides.", flag="--security", of=SECURITIES
    )
    brokers: int = option(3, least=1, most=9)
    partitions: int = option(3, least=1, most=1000)
    rounds: int = option(5, least=1)
    megabytes: float = option(400.0, "Measured in each load.")
    seconds: float = option(10.0, "A load ends then at the latest.")
    warm_up: float = option(0.3, "Seconds of load before that.")
    starts: int = option(3, least=1)

    def lines(self) -> list[Line]:
        what = f"produce acks={self.acks}, {self.brokers} brokers, RF {min(3, self.brokers)}"
        spoken = {s: "" if s == SECURITIES[0] else f", {s.upper()}" for s in self.securities}
        ready = f"ZooKeeper and {self.brokers} brokers to ready"
        return [
            *(
                Line(f"{security} {batch}", f"{what}{named}, {batch} KiB batches", "MB/s",
                     more_is_better=True)
                for security, named in spoken.items() for batch in self.batches
            ),
            Line("idle", "memory of an idle broker", "MiB PSS"),
            Line("ready", ready, "s"),
        ]  # fmt: skip


async def run(options: Options, sides: Sides) -> Table:
    for number in range(options.starts - 1):
        for side in sides.sides:
            sides.progress(f"start {number + 1} of {options.starts}: {side.name}")
            async with side.cluster(options.brokers):
                pass
    samples = Samples()
    for security in dict.fromkeys(options.securities):
        samples.update(await _with(security, options, sides, first=not samples))
    return sides.table(options.lines(), samples)


async def _with(security: str, options: Options, sides: Sides, *, first: bool) -> Samples:
    """The rates by this protocol; the time to ready and the memory are those of the first one."""
    samples = Samples()
    plan = Plan(
        pairs=options.rounds, warm=0, megabytes=options.megabytes, seconds=options.seconds,
        brokers=options.brokers, security=security,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        turns = Turns(plan, sides, stack)
        clusters = await turns.clusters()
        if first:
            sides.progress(f"idle for {IDLE_S:g} s")
            await trio.sleep(IDLE_S)
            for index, (side, cluster) in enumerate(zip(sides.sides, clusters, strict=True)):
                samples.add("ready", index, *side.ready_s)
                samples.add("idle", index, *map(pss_mib, broker_pids(cluster)))
        for batch in options.batches:
            sides.progress(f"{security}, {batch} KiB batches")
            lines = [line for line in options.lines() if line.name == f"{security} {batch}"]
            once = _once(options, security, batch)
            samples.update(await turns.in_turn(lines, once, options.partitions))
    return samples


def _once(options: Options, security: str, batch_kib: int) -> Once:
    async def once(_: Plan, cluster: ProcessCluster, topic: str) -> tuple[float]:
        settings = client_settings(cluster.folder / "secure", cluster.bootstrap, security)
        load = Load(
            bootstrap=settings.pop("bootstrap.servers"),
            topic=topic,
            record_bytes=options.record_bytes,
            batch_bytes=batch_kib * KIB,
            acks=options.acks,
            warm_up_s=options.warm_up,
            measure_s=options.seconds,
            measure_mb=options.megabytes,
            settings=settings,
        )
        return (await produced(load),)

    return once
