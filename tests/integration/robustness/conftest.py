"""Fixtures: one ZooKeeper for all, brokers that are gone after the test, a small disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.robustness.rig import BrokerProcess, ZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.end()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes broker processes: `brokers(zookeeper_connect, number, property="value")`."""
    made: list[BrokerProcess] = []

    def make(zookeeper_connect: str, number: int = 1, **properties: str) -> BrokerProcess:
        folder = tmp_path / f"{len(made)}-broker-{number}"
        made.append(BrokerProcess(folder, zookeeper_connect, number, **properties))
        return made[-1]

    yield make
    for broker in made:
        broker.end()


@pytest.fixture(scope="session")
def small_disk() -> Iterator[Callable[[Path, int], None]]:
    """Mounts a disk of a number of bytes on a folder; needs root."""
    mounted: list[Path] = []

    def mount(folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = f"a small disk cannot be mounted: {done.stderr.strip()}"
            if os.environ.get("CI"):
                pytest.fail(why)
            pytest.skip(why)
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=False)
