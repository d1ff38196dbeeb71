"""`highwater bench flat`: what a request costs as a broker has more partitions, connections, data.

Theory of operation.  One broker, RF 1.  One thing grows at a time: the partitions of the broker (of
which each request takes one at random), the open connections (which take turns), and the bytes of
the log (in which fetches read anywhere).  At each step so many requests are sent one after the
other (`spread_requests`), and the broker's CPU time between the first and the last of them is
divided by their number: to open the connections does not count.  The order of the steps is forward
and back, so that a machine that gets slower is not mistaken for a cost that grows.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from highwater.bench.everything.rate_rows import output
from highwater.bench.figures.curves import Series, page
from highwater.bench.figures.rows import rows_text
from highwater.bench.figures.sides import BenchFailed, Progress
from highwater.bench.load import Load
from highwater.bench.loads.bench_topics import create_topic
from highwater.bench.loads.spread_requests import Spread
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings

APIS = ("produce", "fetch")
TOPIC = "flat"
FILL_BATCH_BYTES, FILL_RECORD_BYTES = 16_384, 1000
_SPARE_FILES = 200


@dataclass(frozen=True, slots=True)
class Plan:
    partitions: tuple[int, ...] = (10, 100, 1000, 5000)
    connections: tuple[int, ...] = (1, 100, 1000, 5000)
    gib: tuple[float, ...] = (0, 1, 5, 10)
    requests: int = 5000
    rounds: int = 2


QUICK = Plan((1, 10), (1, 5), (0, 0.01), 100)


@dataclass(slots=True)
class Step:
    """One value of what grows: samples by API, of the broker's CPU and of the whole request."""

    at: float
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    p50_us: dict[str, list[float]] = field(default_factory=dict)
    p99_us: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Axis:
    """One thing that grows."""

    name: str
    steps: list[Step]

    def growth(self, api: str) -> float:
        """CPU of a request at the last step, divided by that at the first."""
        first, last = (statistics.median(s.cpu_us[api]) for s in (self.steps[0], self.steps[-1]))
        return last / first


async def run(plan: Plan, folder: Path, progress: Progress) -> list[Axis]:
    _need_files(max(plan.connections))
    return [
        await _partitions(plan, folder, progress),
        await _connections(plan, folder, progress),
        await _bytes(plan, folder, progress),
    ]


def _need_files(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        raise BenchFailed(f"{connections} connections need ulimit -n {wanted}; it is {hard}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@asynccontextmanager
async def _cluster(folder: Path, name: str) -> AsyncIterator[ProcessCluster]:
    properties = {"log.segment.bytes": str(1 << 30), "log.retention.ms": "-1"}
    settings = Settings(
        folder / name,
        brokers=1,
        profile="kafka",
        quick_end=True,
        properties=properties,
        zookeeper="java",
    )
    async with process_cluster(settings) as cluster:
        yield cluster
    shutil.rmtree(folder / name, ignore_errors=True)


def _there_and_back(steps: Sequence[Step], rounds: int) -> list[Step]:
    return [s for n in range(rounds) for s in (steps if n % 2 == 0 else reversed(steps))]


async def _partitions(plan: Plan, folder: Path, progress: Progress) -> Axis:
    """A cluster for each number, as partitions cannot be taken away."""
    axis = Axis("partitions of a broker", [Step(n) for n in plan.partitions])
    for number, step in enumerate(_there_and_back(axis.steps, plan.rounds)):
        async with _cluster(folder, f"partitions-{number}") as cluster:
            await _topic(cluster, int(step.at))
            await _first_records(cluster, int(step.at))
            await _measure(plan, cluster, axis, step, progress, partitions=int(step.at))
    return axis


async def _first_records(cluster: ProcessCluster, partitions: int) -> None:
    """Each partition gets a record, so that a fetch finds one anywhere; returns when it has."""
    host, port = cluster.address(1)
    once = Spread("produce", host, port, TOPIC, partitions, requests=partitions, in_order=True)
    await output(once.command())


async def _connections(plan: Plan, folder: Path, progress: Progress) -> Axis:
    axis = Axis("open connections", [Step(n) for n in plan.connections])
    async with _cluster(folder, "connections") as cluster:
        await _topic(cluster, 1)
        await _first_records(cluster, 1)
        for step in _there_and_back(axis.steps, plan.rounds):
            await _measure(plan, cluster, axis, step, progress, connections=int(step.at))
    return axis


async def _bytes(plan: Plan, folder: Path, progress: Progress) -> Axis:
    """Only forward: what is in the log stays."""
    axis = Axis("GiB in the log", [Step(n) for n in plan.gib])
    offsets = 1
    async with _cluster(folder, "bytes") as cluster:
        await _topic(cluster, 1)
        await _first_records(cluster, 1)
        before = 0.0
        for step in axis.steps:
            if step.at > before:
                progress(f"filling the log to {step.at:g} GiB")
                offsets += await _fill(cluster, step.at - before)
                before = step.at
            for _ in range(plan.rounds):
                await _measure(plan, cluster, axis, step, progress, offsets=offsets)
    return axis


async def _fill(cluster: ProcessCluster, gib: float) -> int:
    load = Load(
        cluster.direct_bootstrap, TOPIC, FILL_RECORD_BYTES, FILL_BATCH_BYTES, "1", 0, 3600,
        gib * (1 << 30) / 1e6,
    )  # fmt: skip
    return int(json.loads(await output(load.command()))["records"])


async def _topic(cluster: ProcessCluster, partitions: int) -> None:
    where = cluster.direct_bootstrap
    await trio.to_thread.run_sync(create_topic, where, TOPIC, partitions, 1, {})


async def _measure(
    plan: Plan,
    cluster: ProcessCluster,
    axis: Axis,
    step: Step,
    progress: Progress,
    *,
    partitions: int = 1,
    connections: int = 1,
    offsets: int = 1,
) -> None:
    host, port = cluster.address(1)
    pid = cluster.pid(broker(1))
    said = []
    for api in APIS:
        spread = Spread(
            api, host, port, TOPIC, partitions, connections, plan.requests, offsets, pid=pid
        )
        found = json.loads(await output(spread.command()))
        for into, name in (
            (step.cpu_us, "cpu_us"), (step.p50_us, "p50_us"), (step.p99_us, "p99_us")
        ):  # fmt: skip
            into.setdefault(api, []).append(found[name])
        said.append(f"{api} {found['cpu_us']:.0f} µs of CPU")
    progress(f"{step.at:g} {axis.name}: {', '.join(said)}")


HEAD = ("", "produce, CPU µs", "p50 µs", "p99 µs", "fetch, CPU µs", "p50 µs", "p99 µs")


def rows(axis: Axis) -> list[tuple[str, ...]]:
    made = []
    for step in axis.steps:
        cells = [f"{step.at:g}"]
        for api in APIS:
            figures = (step.cpu_us[api], step.p50_us[api], step.p99_us[api])
            cells += [f"{statistics.median(samples):.0f}" for samples in figures]
        made.append(tuple(cells))
    return made


def text(axes: Sequence[Axis]) -> str:
    out = []
    for axis in axes:
        out += [rows_text((axis.name, *HEAD[1:]), rows(axis)), growth(axis), ""]
    return "\n".join(out)


def growth(axis: Axis) -> str:
    told = ", ".join(f"{api} {axis.growth(api):.2f}" for api in APIS)
    return f"CPU of a request, last step to first: {told}"


def markdown(axes: Sequence[Axis]) -> str:
    out = []
    for axis in axes:
        head = (axis.name, *HEAD[1:])
        out += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        out += [f"| {' | '.join(cells)} |" for cells in rows(axis)]
        out += ["", growth(axis) + ".", ""]
    return "\n".join(out).rstrip()


def html(axes: Sequence[Axis], sentence: str) -> str:
    series = []
    for axis in axes:
        curves = {
            api: [(s.at, statistics.median(s.cpu_us[api])) for s in axis.steps] for api in APIS
        }
        series.append(Series(f"CPU µs of a request, by {axis.name}", curves))
    return page("What a request costs", sentence, series, steps=True)


def as_json(axes: Sequence[Axis]) -> dict[str, object]:
    return {
        axis.name: [
            {"at": s.at, "cpu_us": s.cpu_us, "p50_us": s.p50_us, "p99_us": s.p99_us}
            for s in axis.steps
        ]
        for axis in axes
    }
