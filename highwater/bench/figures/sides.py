"""The measured sides: Highwater, and the program it is compared with."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from highwater.child_processes import StartError
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import Program

Progress = Callable[[str], None]


class BenchFailed(StartError):
    """A benchmark failed; the message says why."""


@dataclass(slots=True)
class Side:
    """One of the two: `ours` or `theirs`."""

    name: str
    program: Program
    folder: Path
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of its brokers, beside those of a row."""
    zookeeper: str = "java"
    ready_s: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    mb_per_s: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """By the security of the clients' listener, and the size of a batch."""
    _runs: int = 0
    _kept: list[Path] = field(default_factory=list)

    @asynccontextmanager
    async def cluster(
        self,
        brokers: int,
        properties: Mapping[str, str] | None = None,
        security: str = "plaintext",
        *,
        keep_files: bool = False,
    ) -> AsyncIterator[ProcessCluster]:
        """A new cluster without data; keeps the time until each broker knows all brokers.

        With `keep_files` its files stay until `clear`, for where making files is measured: an ext4
        without a journal looks at each inode that was deleted within minutes before it makes one.
        """
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        settings = Settings(
            folder,
            zookeeper=self.zookeeper,
            brokers=brokers,
            profile="kafka",
            program=self.program,
            security=security,
            # deleted data must not stay in the page cache for a minute, at the others' cost
            properties={
                "log.segment.delete.delay.ms": "1000",
                **self.properties,
                **(properties or {}),
            },
        )
        began = time.monotonic()
        async with process_cluster(settings, timeout_s=120) as cluster:
            self.ready_s.append(time.monotonic() - began)
            yield cluster
        if keep_files:
            self._kept.append(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)  # a failed one is left for inspection

    def clear(self) -> None:
        """Removes the files that were kept."""
        while self._kept:
            shutil.rmtree(self._kept.pop(), ignore_errors=True)
