"""`highwater bench flat`: a request's cost when a broker has more partitions, connections or data.

Theory of operation.  One broker, RF 1.  One thing grows at a time: the partitions of the broker
(each request uses one at random), the open connections (which take turns), or the bytes of the log
(fetches read at random places).  At each step a number of requests is sent one after the other
(`spread_requests`), and the broker's CPU time between the first and the last of them is divided by
their number, so opening the connections does not count.  The steps are taken forward and then back,
so that a machine that becomes slower is not mistaken for a growing cost.
"""

from __future__ import annotations

import json
import resource
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from highwater.bench.benchmark import option
from highwater.bench.figures.curves import Series, page
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import BenchFailed, Sides
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.load_process import output
from highwater.bench.loads.spread_requests import Spread
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster

APIS = ("produce", "fetch")
FIGURES = {"cpu_us": "CPU µs", "p50_us": "p50 µs", "p99_us": "p99 µs"}
TOPIC = "flat"
PARTITIONS, CONNECTIONS, GIB = "partitions of a broker", "open connections", "GiB in the log"
FILL_BATCH_BYTES, FILL_RECORD_BYTES = 16_384, 1000
_SPARE_FILES = 200
_START: dict[str, Any] = {
    "brokers": 1,
    "quick_end": True,
    "properties": {"log.segment.bytes": str(1 << 30), "log.retention.ms": "-1"},
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of each thing that grows, and the number of requests of each API at each step."""

    steps: Mapping[str, Sequence[float]]
    requests: int
    rounds: int = 2


_MANY: Sequence[float] = (1, 100, 1000, 5000)
WHOLE = Plan({PARTITIONS: (10, *_MANY[1:]), CONNECTIONS: _MANY, GIB: (0, 1, 5, 10)}, 5000)
QUICK = Plan({PARTITIONS: (1, 10), CONNECTIONS: (1, 5), GIB: (0, 0.01)}, 100)


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool = option(False, "Tiny sizes: a test of the command, no measurement.")


async def run(options: Options, sides: Sides) -> Table:
    plan = QUICK if options.quick else WHOLE
    _need_files(int(max(plan.steps[CONNECTIONS])))
    bench = _Flat(plan, sides)
    await bench.partitions()
    await bench.connections()
    await bench.bytes()
    return sides.table(lines(plan, bench.samples), bench.samples)


def lines(plan: Plan, samples: Samples) -> list[Line]:
    """A line of the table for each step, and below those of an axis a line for the growth of a
    request's CPU time, whose samples are added to `samples`."""
    made = []
    for axis, steps in plan.steps.items():
        for api in APIS:
            first, last = (
                samples[f"{api} {at:g} {axis} cpu_us"][0] for at in (steps[0], steps[-1])
            )
            # the kernel counts in hundredths of a second: a tiny run may have used none
            growth = statistics.median(last) / max(statistics.median(first), 1)
            samples.add(f"{api} {axis} growth", 0, growth)
        made += [
            Line(f"{api} {at:g} {axis} {name}", f"{at:g} {axis}", "", column=f"{api}, {title}")
            for at in steps for api in APIS for name, title in FIGURES.items()
        ]  # fmt: skip
        what = f"{axis}: last step to first"
        made += [Line(f"{api} {axis} growth", what, "", column=f"{api}, CPU µs") for api in APIS]
    return made


def html(table: Table, sentence: str) -> str:
    """A page with a plot for each thing that grows."""
    series = []
    for axis in (PARTITIONS, CONNECTIONS, GIB):
        steps = {
            api: [
                (float(row.what.split()[0]), statistics.median(row.ours))
                for row in table.rows
                if row.what.endswith(axis) and row.column == f"{api}, CPU µs"
            ]
            for api in APIS
        }
        series.append(Series(f"CPU µs of a request, by {axis}", steps))
    return page("What a request costs", sentence, series, steps=True)


def _need_files(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        raise BenchFailed(f"{connections} connections need ulimit -n {wanted}; it is {hard}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Flat:
    def __init__(self, plan: Plan, sides: Sides) -> None:
        self.plan, self.sides = plan, sides
        self.samples = Samples()

    def _there_and_back(self, axis: str) -> list[float]:
        steps = self.plan.steps[axis]
        return [s for n in range(self.plan.rounds) for s in (steps if n % 2 == 0 else steps[::-1])]

    async def partitions(self) -> None:
        """Measures each number of partitions on a cluster of its own, as none can be removed."""
        for at in self._there_and_back(PARTITIONS):
            async with self.sides.ours.cluster(**_START) as cluster:
                await _topic(cluster, int(at))
                await self._measure(cluster, at, PARTITIONS, partitions=int(at))

    async def connections(self) -> None:
        async with self.sides.ours.cluster(**_START) as cluster:
            await _topic(cluster, 1)
            for at in self._there_and_back(CONNECTIONS):
                await self._measure(cluster, at, CONNECTIONS, connections=int(at))

    async def bytes(self) -> None:
        """Measures each size of the log, only forward, because the log's data stay."""
        offsets, before = 1, 0.0
        async with self.sides.ours.cluster(**_START) as cluster:
            await _topic(cluster, 1)
            for at in self.plan.steps[GIB]:
                if at > before:
                    self.sides.progress(f"filling the log to {at:g} GiB")
                    offsets += await _fill(cluster, at - before)
                    before = at
                for _ in range(self.plan.rounds):
                    await self._measure(cluster, at, GIB, offsets=offsets)

    async def _measure(self, cluster: ProcessCluster, at: float, axis: str, **load: Any) -> None:
        host, port = cluster.address(1)
        pid, said = cluster.pid(broker(1)), []
        for api in APIS:
            spread = Spread(api, host, port, TOPIC, requests=self.plan.requests, pid=pid, **load)
            found = json.loads(await output(spread.command()))
            for name in FIGURES:
                self.samples.add(f"{api} {at:g} {axis} {name}", 0, found[name])
            said.append(f"{api} {found['cpu_us']:.0f} µs of CPU")
        self.sides.progress(f"{at:g} {axis}: {', '.join(said)}")


async def _topic(cluster: ProcessCluster, partitions: int) -> None:
    """Makes the topic, with a record in each partition, so that any fetch finds one."""
    where, (host, port) = cluster.direct_bootstrap, cluster.address(1)
    await create_topic(where, TOPIC, partitions, 1, {})
    once = Spread("produce", host, port, TOPIC, partitions, requests=partitions, in_order=True)
    await output(once.command())


async def _fill(cluster: ProcessCluster, gib: float) -> int:
    """Fills the log; returns its number of records."""
    load = Load(
        cluster.direct_bootstrap, TOPIC, FILL_RECORD_BYTES, FILL_BATCH_BYTES, "1", 0, 3600,
        gib * (1 << 30) / 1e6,
    )  # fmt: skip
    return int(json.loads(await output(load.command()))["records"])
