"""The cluster that a chaos run breaks, as `--target` names it.

    apache:3.9.2          that release of Apache Kafka, from Maven, with ZooKeeper
    apache:2.4.0          the same; each release from 2.4.0 to 3.9
    apache:3.9.2-kraft    that release in KRaft mode, from 3.7 on: each broker is a controller, too
    apache:4.2.0          KRaft mode, as 4.0 and later have no other
    apache:4.2.0-apart    KRaft mode with three controllers in processes of their own
    localhost:9092        a cluster that runs already (`remote_cluster`)
    compose:FILE          the brokers of a Compose project that runs (`compose_target`)

Without `--target` it is Highwater's own brokers.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import trio

from highwater.child_processes import StartError
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import lacks
from highwater.cluster.interface import (
    Cluster,
    controller,
    controller_ids,
)
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import ApacheKafka, numbers
from highwater.cluster.processes.zookeeper_process import for_a_proof
from highwater.cluster.remote import compose_target
from highwater.cluster.remote.remote_cluster import AddressTarget, Commands, brokers_at
from highwater.cluster.remote.secured_target import network_of

FIRST = (2, 4)
"""The first release that is built for Scala 2.13, and that moves leaders by Admin (KIP-455)."""
FIRST_KRAFT = (3, 7)
"""KRaft ran in production from 3.3 on; 3.7 is the first that several log directories can have."""
FIRST_WITHOUT_ZOOKEEPER = (4, 0)
_ADDRESS = re.compile(r"(?!apache:)[^\s,/]+:\d{1,5}")
_APACHE = re.compile(r"apache:(\d+(?:\.\d+){2})(-kraft|-apart)?")
QUICK = ("-Xmx640m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A run's brokers live for minutes, and start in half the time without the slower compiler."""
FORMS = (
    "apache:VERSION (such as apache:4.2.0, apache:4.2.0-apart, apache:3.9.2, apache:3.9.2-kraft)"
)


class Target(Protocol):
    """A cluster to break; its `str` is its name for people."""

    @property
    def brokers(self) -> Sequence[int]: ...

    @property
    def controllers(self) -> Sequence[str]:
        """Its members that are controllers and no brokers; empty if it has none."""

    @property
    def lacks(self) -> Mapping[str, str]:
        """Faults that it cannot suffer, and effects that it does not show: `Cluster.lacks`."""

    @property
    def shared(self) -> bool:
        """Whether it outlives the run: then the run's topics must be new, and are deleted."""

    def open(
        self, folder: Path, properties: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Cluster]:
        """The cluster, started where it is the target's to start."""


@dataclass(frozen=True, slots=True)
class ApacheRelease:
    """Three brokers of a release, as processes on this machine."""

    version: str
    kraft: bool = False
    apart: bool = False
    brokers: tuple[int, ...] = (1, 2, 3)
    shared: bool = False
    zookeeper: str = ""
    """The value of `--zookeeper`; empty: Java's if it can run here, else embedded."""

    def __str__(self) -> str:
        mode = "KRaft, controllers apart" if self.apart else "KRaft" if self.kraft else "ZooKeeper"
        return f"Apache Kafka {self.version} ({mode})"

    @property
    def controllers(self) -> Sequence[str]:
        return list(map(controller, controller_ids(len(self.brokers) * self.apart)))

    @property
    def lacks(self) -> Mapping[str, str]:
        return lacks(Kind.DOORLESS, Kind.FOREIGN, *[Kind.KRAFT] * self.kraft)

    @asynccontextmanager
    async def open(self, folder: Path, properties: Mapping[str, str]) -> AsyncIterator[Cluster]:
        settings = Settings(
            folder,
            proxies=True,
            program=self.program(),
            quick_end=True,
            properties=properties,
            zookeeper="" if self.kraft else for_a_proof(self.zookeeper),
        )
        async with process_cluster(settings) as cluster:
            yield cluster

    def program(self) -> ApacheKafka:
        """Fetches the release where it is not there; raises StartError."""
        home = apache.home(self.version)
        return ApacheKafka(
            home, jvm=QUICK, version=self.version, kraft=self.kraft, apart=self.apart
        )


def parse(
    text: str,
    commands: Commands = Commands(),
    services: Sequence[str] = (),
    config: Path | None = None,
) -> Target:
    """The target that a text names; StartError if it names none, or no broker answers there.

    `services`: the services of a Compose project whose brokers are to be broken, if not all are.
    `config`: a client's settings, for a cluster at an address that requires TLS or a login."""
    if text.startswith("compose:"):
        return compose_target.find(text.removeprefix("compose:"), services)
    if not text.startswith("apache:") and all(map(_ADDRESS.fullmatch, text.split(","))):
        network = None if config is None else network_of(config)
        return AddressTarget(text, trio.run(brokers_at, text, network), commands, network=network)
    if not text.startswith("apache:"):
        raise StartError(
            f"--target {text!r} is not understood; write {FORMS}, compose:FILE or HOST:PORT"
        )
    return release(text)


def release(text: str) -> ApacheRelease:
    """The release that `apache:VERSION` names; raises StartError."""
    match = _APACHE.fullmatch(text)
    if match is None:
        raise StartError(f"{text!r} is not understood; write {FORMS}")
    version, kraft, apart = match.group(1), bool(match.group(2)), match.group(2) == "-apart"
    if numbers(version) < FIRST:
        raise StartError(
            f"{text}: releases before 2.4.0 cannot be moved by Admin (KIP-455),"
            " and are not supported"
        )
    if kraft and numbers(version) < FIRST_KRAFT:
        raise StartError(f"{text}: KRaft mode is supported from 3.7.0 on")
    return ApacheRelease(version, kraft or numbers(version) >= FIRST_WITHOUT_ZOOKEEPER, apart)
