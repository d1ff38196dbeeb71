"""`highwater bench steps`: the steps that keep a broker's loop, under many kinds of load.

Theory of operation.  Everything in a broker runs in one thread, so the longest step of its loop is
the longest wait of every unrelated task.  For each load a fresh cluster of three brokers is
started, which also serves a little traffic (small batches, readers, a scrape every two seconds). At
the end every broker is asked for its longest steps, and the number over 20 ms.  A broker reports
these in its own metrics: nothing is measured from outside.

The time in which the loop's thread was ready and another process had the CPU is no part of a step.
Steps that were long only by that time are counted separately ("without CPU"), and so are those that
computed for less, or take less without their slow calls on files ("blocked").  CPU time taken by a
hypervisor is left out as far as the kernel knows of it: run this on a quiet machine.  The
hypervisor may also have taken back free memory, so that a step pays for getting it again: free
memory is made page cache before each load (see `warm_memory`).  And it may map all memory again, so
that for some tens of milliseconds everything takes many times as long: that is seen from outside
(`slow_host`), and steps long only by that are counted separately ("machine").
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.rows import rows_text
from highwater.bench.figures.sides import Sides
from highwater.bench.figures.slow_host import MachineWatch, SlowMoments, long_steps, watching
from highwater.bench.figures.warm_memory import WarmMemory
from highwater.bench.loads.many_producers import Pressure
from highwater.bench.loads.pipeline_load import numbers, pressing
from highwater.bench.loads.steps_loads import LOADS, Load, one_partition
from highwater.cluster.interface import broker
from highwater.cluster.processes.process_cluster import ProcessCluster

LIMIT_MS = 20.0
SCRAPE_S = 2.0
_BESIDE = "beside"
_PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "500",
    "log.cleaner.backoff.ms": "1000",
}
_TAKEN = "highwater_loop_stepspersec"
_SERIES = re.compile(r'highwater_loop_(\w+)\{step="([^"]*)"\}')


@dataclass(frozen=True, slots=True)
class Options:
    loads: tuple[str, ...] = option(tuple(LOADS), flag="--load", of=tuple(LOADS))
    seconds: float = option(8.0, "About how long each lasts.")
    partitions: int = option(1000, least=1, most=5000)
    members: int = option(200, least=1, most=1000)
    above_ms: float = option(10.0, "Shorter steps are not listed, except each load's longest.")

    @property
    def load(self) -> Load:
        return Load(self.seconds, self.partitions, self.members)


@dataclass(slots=True)
class Step:
    """A step, over all brokers of a cluster."""

    longest_ms: float = 0
    over_limit: int = 0
    without_cpu: int = 0
    blocked: int = 0
    machine: int = 0


Steps = dict[str, Step]


async def run(options: Options, sides: Sides, *, warm: bool = True) -> Found:
    """The steps of each load, by name, the longest first.

    `warm`: free memory is made page cache first, which takes half a minute where none of it is yet.
    """
    found = Found(options.above_ms)
    folder, progress = sides.ours.folder, sides.progress
    with WarmMemory(folder, progress) as memory, watching(folder, progress) as watch:
        for name in options.loads:
            if warm:
                await trio.to_thread.run_sync(memory.fill)
            title_of, drive = LOADS[name]
            title = title_of(options.load)
            progress(f"{title} ...")
            # a machine with too much to do must not end sessions: the profile `kafka`
            start = sides.ours.cluster(properties=_PROPERTIES, quick_end=True)
            async with start as cluster:
                steps = await _measure(options.load, cluster, drive, watch)
            for step, told in islice(steps.items(), 3):
                progress(
                    f"  {step}: {told.longest_ms:.1f} ms, {told.over_limit} above {LIMIT_MS:g}"
                )
            found.loads[title] = steps
            await trio.to_thread.run_sync(os.sync)  # unwritten data must not burden the next load
        if watch.watches:
            slow = watch.moments()
            progress(f"the machine was slow {len(slow.spans)} times, {slow.total_ms:.0f} ms in all")
    return found


async def _measure(
    load: Load,
    cluster: ProcessCluster,
    drive: Callable[[ProcessCluster, Load], Awaitable[None]],
    watch: MachineWatch,
) -> Steps:
    steps: Steps = {}
    await one_partition(cluster, _BESIDE)
    async with _scraped(cluster, steps), _busy(cluster):
        await drive(cluster, load)
    for number in cluster.brokers:  # "no long step" says nothing of a loop that is not watched
        if cluster.running(broker(number)):
            page = await _page(cluster.metrics_port(number))
            if not page.get(_TAKEN):
                raise RuntimeError(
                    f"broker {number} reports no step at all: its loop is not watched"
                )
    take_machine([cluster.output(broker(n)) for n in cluster.brokers], watch.moments(), steps)
    return dict(sorted(steps.items(), key=lambda item: -item[1].longest_ms))


@asynccontextmanager
async def _busy(cluster: ProcessCluster) -> AsyncIterator[None]:
    """A hundred small batches a second, to the broker that leads the topic at the start."""
    host, port = cluster.address(1)
    async with pressing(Pressure(host, port, _BESIDE, 10, 1000, rate=100)):
        yield


@asynccontextmanager
async def _scraped(cluster: ProcessCluster, steps: Steps) -> AsyncIterator[None]:
    """Scrapes like Prometheus, but more often, so that a killed broker has reported its past."""
    counted: dict[tuple[int, str, str], float] = {}

    async def scrape() -> None:
        for number in cluster.brokers:
            if cluster.running(broker(number)):
                take(number, await _page(cluster.metrics_port(number)), steps, counted)

    async def go_on() -> None:
        while True:
            await scrape()
            await trio.sleep(SCRAPE_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        yield
        nursery.cancel_scope.cancel()
    await scrape()
    await scrape()  # the next scrape shows the time of the last one


async def _page(port: int) -> dict[str, float]:
    try:
        return dict(await numbers(port))
    except (OSError, trio.BrokenResourceError):
        return {}  # it has been killed, or is not there yet


def take(
    number: int, page: dict[str, float], steps: Steps, counted: dict[tuple[int, str, str], float]
) -> None:
    for series, value in page.items():
        match = _SERIES.match(series)
        if match is None:
            continue
        kind, name = match[1], _plain(match[2])
        step = steps.setdefault(name, Step())
        if kind == "longeststepms":
            step.longest_ms = max(step.longest_ms, value)
            continue
        before = counted.get((number, kind, match[2]), 0)
        counted[number, kind, match[2]] = value
        new = int(value - before if value >= before else value)  # less: another process
        if kind == "longstepspersec":
            step.over_limit += new
        elif kind == "stepsblockedpersec":
            step.blocked += new
        else:
            step.without_cpu += new


def _plain(name: str) -> str:
    """A name without the numbers of connections, partitions, brokers."""
    return re.sub(r"(?<=[a-z.-])\d+$|-\d+(?=-|$)", "", name)


def take_machine(logs: Iterable[Path], slow: SlowMoments, steps: Steps) -> None:
    """Counts separately the steps that were long only because the machine was slow."""
    told = [(_plain(long.name), slow.own_ms(long)) for log in logs for long in long_steps(log)]
    for name, step in steps.items():
        own = sum(ms > LIMIT_MS for other, ms in told if other == name)
        machine = sum(ms <= LIMIT_MS for other, ms in told if other == name)
        step.machine += machine
        # a killed broker may have reported more in its log than on its last page
        step.over_limit = max(step.over_limit - machine, own)


@dataclass(slots=True)
class Found:
    """The steps of each load, by its title."""

    above_ms: float = 10
    """The table lists no shorter steps, except each load's longest."""
    loads: dict[str, Steps] = field(default_factory=dict)

    def rows(self) -> list[tuple[Any, ...]]:
        """A line for each load, and below it its listed steps."""
        listed: list[tuple[Any, ...]] = []
        for title, steps in self.loads.items():
            listed.append((f"{title}:", *[""] * 5))
            for index, (name, step) in enumerate(steps.items()):
                if index == 0 or step.longest_ms >= self.above_ms or step.over_limit:
                    counts = step.over_limit, step.blocked, step.machine, step.without_cpu
                    listed.append((f"  {name}", step.longest_ms, *counts))
            if not steps:
                listed.append(("  none above 2 ms", "", 0, 0, 0, 0))
        return listed

    def text(self) -> str:
        head = "step", "longest, ms", f"above {LIMIT_MS:g} ms", "blocked", "machine", "without CPU"
        return rows_text(head, self.rows())

    def markdown(self) -> str:
        return f"```\n{self.text()}\n```"

    def too_long(self) -> Sequence[str]:
        """The names of steps above the limit, each once."""
        names = {n: None for steps in self.loads.values() for n, s in steps.items() if s.over_limit}
        return list(names)

    def problem(self) -> str:
        names = self.too_long()
        return f"longer than {LIMIT_MS:g} ms: {', '.join(names)}" if names else ""

    def as_json(self) -> dict[str, Any]:
        return {
            title: {
                name: {
                    "longest ms": round(step.longest_ms, 2),
                    "above 20 ms": step.over_limit,
                    "blocked": step.blocked,
                    "machine": step.machine,
                    "without CPU": step.without_cpu,
                }
                for name, step in steps.items()
            }
            for title, steps in self.loads.items()
        }
