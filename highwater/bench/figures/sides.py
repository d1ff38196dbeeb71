"""The measured sides: Highwater, and the program it is compared with."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from highwater.bench.figures.rows import Line, Samples, Table, table_of
from highwater.child_processes import StartError
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import Program

Progress = Callable[[str], None]
ON_JAVAS = "on ZooKeeper's own server"
"""The name of the other side where ZooKeepers are compared."""


class BenchFailed(StartError):
    """A benchmark failed; the message says why."""


async def until(
    holds: Callable[[], Awaitable[bool]], what: str, within_s: float, every_s: float = 0.05
) -> None:
    """Waits until it holds; raises BenchFailed where that takes longer."""
    with trio.move_on_after(within_s):
        while not await holds():
            await trio.sleep(every_s)
        return
    raise BenchFailed(f"not within {within_s:g} s: {what}")


@dataclass(slots=True)
class Side:
    """One of the two measured programs: `ours` or `theirs`."""

    name: str
    program: Program
    folder: Path
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of its brokers, in addition to those of a row."""
    zookeeper: str = "java"
    ready_s: list[float] = field(default_factory=list)
    _runs: int = 0
    _kept: list[Path] = field(default_factory=list)

    @asynccontextmanager
    async def cluster(
        self,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        profile: str = "kafka",
        keep_files: bool = False,
        **settings: Any,
    ) -> AsyncIterator[ProcessCluster]:
        """A new cluster without data; keeps the time until each broker knows all brokers.

        `settings` are further fields of `Settings`.  With `keep_files` its files stay until
        `clear`.  That is for measures of making files: an ext4 without a journal examines each
        inode deleted in the last minutes before it makes a new one.
        """
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        # deleted data must not stay in the page cache for a minute, at the others' cost
        soon = {"log.segment.delete.delay.ms": "1000"} if profile == "kafka" else {}
        made = Settings(
            folder,
            zookeeper=self.zookeeper,
            brokers=brokers,
            profile=profile,
            program=self.program,
            properties={**soon, **self.properties, **(properties or {})},
            **settings,
        )
        began = time.monotonic()
        async with process_cluster(made, timeout_s=120) as cluster:
            self.ready_s.append(time.monotonic() - began)
            yield cluster
        if keep_files:
            self._kept.append(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)  # after a failure it stays for inspection

    def clear(self) -> None:
        """Removes the files that were kept."""
        while self._kept:
            shutil.rmtree(self._kept.pop(), ignore_errors=True)


@dataclass(slots=True)
class Sides:
    """What a benchmark measures: the sides, Highwater's first; also shows the progress."""

    sides: Sequence[Side]
    progress: Progress

    @property
    def ours(self) -> Side:
        return self.sides[0]

    @property
    def theirs(self) -> str:
        """The name of the other side; empty where there is none."""
        return self.sides[1].name if len(self.sides) > 1 else ""

    async def alone(
        self,
        load: Callable[[ProcessCluster, Side], Awaitable[Mapping[str, float | Sequence[float]]]],
        rounds: int = 1,
        **start: Any,
    ) -> Samples:
        """Gives each side in turn the machine for itself, several times: a new cluster (`start` as
        for `Side.cluster`) takes the load, which returns one or more figures for each line."""
        samples = Samples()
        for number in range(rounds):
            for index, side in enumerate(self.sides):
                async with side.cluster(**start) as cluster:
                    found = await load(cluster, side)
                for line, given in found.items():
                    samples.add(line, index, *(given if isinstance(given, Sequence) else [given]))
                said = ", ".join(
                    f"{line} {given:.2f}" for line, given in found.items()
                    if not isinstance(given, Sequence)
                )  # fmt: skip
                self.progress(f"round {number + 1} of {rounds}, {side.name}: {said or 'done'}")
        for side in self.sides:
            side.clear()
        return samples

    @asynccontextmanager
    async def together(self, *given: Any, **start: Any) -> AsyncIterator[list[ProcessCluster]]:
        """A new cluster of each side; all of them stay up until the end."""
        async with AsyncExitStack() as stack:
            clusters = []
            for side in self.sides:
                self.progress(f"{side.name}: starts")
                clusters.append(await stack.enter_async_context(side.cluster(*given, **start)))
            yield clusters

    def table(self, lines: Iterable[Line], samples: Samples) -> Table:
        return table_of(lines, samples, self.theirs)
