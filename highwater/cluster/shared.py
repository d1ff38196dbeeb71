"""The common part of the process and Compose runtimes: addresses, proxies, waits for brokers."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import trio

from highwater.child_processes import Pid, StartError
from highwater.cluster.ask import brokers_known
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import IN_CONTAINERS, lacks
from highwater.cluster.hosts import Hosts
from highwater.cluster.interface import (
    ELSEWHERE,
    TRACEBACK,
    ZOOKEEPER,
    ClusterError,
    broker,
    broker_number,
    exceptions_in,
)
from highwater.cluster.links.lending import RECALL_S, Lender
from highwater.cluster.links.link_rules import Links
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.lives import Lives

SECURE = "SECURE"
"""The listener of secured clients (`process_cluster`)."""


@dataclass(slots=True)
class Ports:
    """One broker's ports on this machine: listener -> port, and the port of its ZooKeeper."""

    bound: dict[str, int]
    """The broker's own ports."""
    advertised: dict[str, int]
    """The ports that the broker advertises: the proxies', where there are proxies."""
    zookeeper: int
    metrics: int = -1
    """The port of its metrics page, on Highwater's own brokers."""


class LocalCluster(ABC):
    """A cluster whose members are reached at ports of 127.0.0.1."""

    runtime: str
    poll_s: float
    zookeeper_kind: str

    def __init__(self, folder: Path, brokers: Sequence[int], links: Links | None) -> None:
        self.folder = folder
        self.brokers = list(brokers)
        self.links = links
        self.hosts: Hosts | None = None
        self.lives = Lives()
        self.proxies: list[Proxy] = []
        self._lenders: dict[str, Lender] = {}
        """Broker -> what lends it the sockets of the proxies in front of it."""
        self._further: dict[str, Any] = {}
        self._wanted: set[str] = set()
        """Members that should run now."""
        self._zookeeper_port, self._ports = self._choose_ports()

    @abstractmethod
    def _choose_ports(self) -> tuple[int, dict[int, Ports]]:
        """ZooKeeper's port, and each broker's ports."""

    @property
    def where_logs_are(self) -> str:
        return f"{self.folder}/broker-N/output.log"

    @abstractmethod
    def broker_output(self, number: int) -> str:
        """All that a broker has written so far."""

    @abstractmethod
    async def _require_alive(self, numbers: Sequence[int]) -> None:
        """Raises StartError, with the last words, where one of these brokers has ended."""

    @property
    def bootstrap(self) -> str:
        return self._external([ports.advertised for ports in self._ports.values()])

    @property
    def inner_bootstrap(self) -> str:
        return self.bootstrap

    @property
    def direct_bootstrap(self) -> str:
        return self._external([ports.bound for ports in self._ports.values()])

    @staticmethod
    def _external(listeners: Sequence[dict[str, int]]) -> str:
        return ",".join(f"127.0.0.1:{ports['EXTERNAL']}" for ports in listeners)

    @property
    def zookeeper_connect(self) -> str:
        return f"127.0.0.1:{self._zookeeper_port}"

    def _zookeepers(self) -> list[tuple[str, int]]:
        """The addresses of the brokers' ZooKeeper itself, not of a proxy."""
        return [("127.0.0.1", self._zookeeper_port)]

    def address(self, number: int, listener: str = "EXTERNAL") -> tuple[str, int]:
        """A broker's own address, not that of a proxy."""
        return "127.0.0.1", self._ports[number].bound[listener]

    def members(self) -> list[str]:
        own = self.zookeeper_kind not in ("", ELSEWHERE)
        return [*[ZOOKEEPER] * own, *(broker(n) for n in self.brokers)]

    def port_of(self, member: str) -> int:
        if member == ZOOKEEPER:
            return self._zookeeper_port
        return self._ports[broker_number(member)].advertised["EXTERNAL"]

    @abstractmethod
    def metrics_address(self, number: int) -> str | None:
        """HOST:PORT of a broker's metrics, where it has them."""

    def state(self) -> dict[str, Any]:
        """The content of state.json."""
        return {
            "supervisor": Pid.of(os.getpid()).as_json(),
            "runtime": self.runtime,
            "bootstrap": self.bootstrap,
            "zookeeper": self.zookeeper_connect,
            "zookeeper_kind": self.zookeeper_kind,
            "zookeeper_port": self._zookeeper_port,
            "ports": {n: asdict(ports) for n, ports in self._ports.items()},
            "metrics": {n: self.metrics_address(n) for n in self._ports},
            "processes": {},
        }

    def write_state(self, **further: Any) -> None:
        """Writes state.json, whole or not at all: `down` and `status` read it.  Further fields
        stay in it from then on."""
        self._further |= further
        temporary = self.folder / "state.json.tmp"
        temporary.write_text(json.dumps({**self.state(), **self._further}, indent=1) + "\n")
        os.replace(temporary, self.folder / "state.json")

    def data_dirs(self, number: int) -> list[Path]:
        return [self.folder / broker(number) / "data"]

    def logged_exceptions(self) -> list[str]:
        outputs = {number: self.broker_output(number) for number in self.brokers}
        return [
            f"broker-{number} {exceptions_in(text)}"
            for number, text in outputs.items()
            if TRACEBACK in text
        ]

    @property
    def lacks(self) -> Mapping[str, str]:
        return lacks(*self._kinds(), *[Kind.KRAFT] * (not self.zookeeper_connect))

    def _kinds(self) -> Sequence[Kind]:
        return IN_CONTAINERS

    async def fill_disk(self, member: str) -> int:
        raise ClusterError(f"the disk of {member} cannot be filled: {self.lacks['disk_full']}")

    async def serve_proxies(
        self,
        nursery: trio.Nursery,
        hosts: Sequence[str] = ("127.0.0.1",),
        external: Sequence[str] = (),
    ) -> None:
        """Serves on each advertised port, and before ZooKeeper; does nothing without links.
        `external`: other hosts for the clients' listener."""
        if self.links is None:
            return
        self.links.on_touch = self._take_back_ports
        for number, ports in self._ports.items():
            ways = {
                name: (ports.bound[name], port)
                for name, port in ports.advertised.items()
                if ports.bound[name] != port
            }
            if self.zookeeper_connect:
                ways[ZOOKEEPER] = (self._zookeeper_port, ports.zookeeper)
            lent: dict[str, Proxy] = {}
            for name, (target, port) in ways.items():
                places = self._zookeepers() if name == ZOOKEEPER else [("127.0.0.1", target)]
                proxy = Proxy(
                    self.links,
                    places[0][1],
                    host=places[0][0],
                    others=places[1:],
                    owner=self._owner(number, name),
                    zookeeper=name == ZOOKEEPER,
                    opaque=name == SECURE and self.links.encrypted_clients,
                )
                self.proxies.append(proxy)
                wide = external if name == "EXTERNAL" else ()
                await nursery.start(proxy.serve, port, wide or hosts)
                if name != ZOOKEEPER:
                    lent[name] = proxy
            if self._lends_to(number):
                door = self.folder / broker(number) / "link-door"
                door.parent.mkdir(parents=True, exist_ok=True)
                lender = Lender(door, lent)
                with suppress(OSError):  # without sockets in the file system nothing is lent
                    await nursery.start(lender.serve)
                    self._lenders[broker(number)] = lender

    def _lends_to(self, number: int) -> bool:
        """Whether a broker may borrow its proxies' ports until a fault needs the proxies."""
        return False

    async def _take_back_ports(self) -> None:
        for lender in self._lenders.values():
            lender.recall()
        for member, lender in self._lenders.items():
            if not await lender.is_back():
                raise ClusterError(
                    f"{member} has not handed over its connections within {RECALL_S:g} s: resume "
                    "it if it stands still"
                )

    def _owner(self, number: int, listener: str) -> str:
        """The member that serves this listener among this broker's ports."""
        return broker(number)

    async def _wait_ready(self, numbers: list[int], known: set[int], timeout_s: float) -> None:
        """Waits until each of these brokers serves and knows `known`; else StartError."""
        waiting = list(numbers)
        with trio.move_on_after(timeout_s):
            while waiting:
                await self._require_alive(waiting)
                if known <= await brokers_known(self.address(waiting[0])):
                    waiting.pop(0)
                else:
                    await trio.sleep(self.poll_s)
            return
        names = ", ".join(broker(n) for n in waiting)
        raise StartError(f"not ready after {timeout_s:g} s: {names}; output in {self.folder}")
