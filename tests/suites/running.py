"""What the suites of all languages share: commands, the cluster, a copy of the source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import Highwater, Program
from highwater.maven import cache_dir
from tests.background import BackgroundCluster
from tests.suites.result import Result

TIME_LIMIT_S = 1800


class CannotRun(Exception):
    """Something that the suite needs is missing; the message names it, and the remedy."""


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    version: str
    source: str
    run: Callable[[Suite, str, Path | None, Path], list[Result]]
    """Gets the suite, the pattern of tests left out, a copy of its source, and a folder to work in.
    """
    properties: dict[str, str] = field(default_factory=dict)
    brokers: int = 3
    ports: tuple[int, ...] = ()
    """Of the brokers, where the suite has them written in its tests; empty: free ones."""
    tag: str = ""
    """Of the source's repository; empty: the version."""
    program: Program = field(default_factory=Highwater)
    variant_of: str = ""
    """The suite whose source and left-out tests are this one's, too."""


def command(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**os.environ, **(env or {})},
        capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise CannotRun(f"{words[0]} {words[1]}: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout


def need(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise CannotRun(f"no {program} on PATH: {remedy}")
    return found


@dataclass(frozen=True, slots=True)
class Advertised:
    """A broker program that gives clients another address than 127.0.0.1 and its port."""

    program: Program
    address: Callable[[int, str], str]
    """Of the broker of a number, whose port is given."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def command(self, properties: Path, profile: str) -> list[str]:
        number = int(properties.parent.name.removeprefix("broker-"))
        properties.write_text(
            re.sub(
                r"(?m)^(advertised.listeners=.*EXTERNAL://)127.0.0.1:(\d+)",
                lambda found: found[1] + self.address(number, found[2]),
                properties.read_text(),
            )
        )
        return self.program.command(properties, profile)


@contextmanager
def cluster_of(
    suite: Suite,
    folder: Path,
    *,
    address: Callable[[int, str], str] | None = None,
    properties: dict[str, str] | None = None,
) -> Iterator[BackgroundCluster]:
    """Its brokers tell clients the `address`, if one is given."""
    shutil.rmtree(folder, ignore_errors=True)
    program = (
        suite.program if address is None else cast(Program, Advertised(suite.program, address))
    )
    settings = Settings(
        folder, suite.brokers, properties={**suite.properties, **(properties or {})},
        program=program, external_ports=suite.ports,
    )  # fmt: skip
    with BackgroundCluster.of(settings) as cluster:
        yield cluster


def checkout(suite: Suite, source: Path | None, work: Path) -> Path:
    """A copy of the client's repository at its tag, because its tests are in no package."""
    target = work / "source"
    shutil.rmtree(target, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, target, symlinks=True)
        return target
    branch = f"--branch={suite.tag or suite.version}"
    try:
        command("git", "clone", "-q", "--depth=1", branch, suite.source, target, cwd=work)
    except CannotRun as error:
        remedy = f"where it cannot be reached, give a copy: --source {suite.name}=DIR"
        raise CannotRun(f"{error} ({remedy})") from error
    return target


def work_folder(name: str) -> Path:
    folder = cache_dir() / "client-suites" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
