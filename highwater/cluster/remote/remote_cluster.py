"""A cluster that others started, at an address, with a proxy in front of each of its brokers.

Theory of operation.  The brokers and their addresses are read from Metadata once, at the start.
Each broker gets a proxy on 127.0.0.1, and every address in an answer that passes a proxy is
replaced by that of the broker's proxy (`links.rewriting`).  An unknown broker's address becomes one
where nothing listens, because a client must not get past the proxies.  So links between clients and
brokers can be cut, slowed down and reset, and messages on them held; the links between brokers are
out of reach.  A process is killed, started, paused and resumed by the user's own commands, where
they are given.

A process counts as running until such a command has ended it: nothing else is known about it.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from highwater.child_processes import StartError
from highwater.cluster.ask import brokers_known, metadata
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import IN_CONTAINERS, VERBS, lacks
from highwater.cluster.hosts import Hosts
from highwater.cluster.interface import (
    PATIENCE_S,
    ClusterError,
    broker,
    broker_number,
    require_member,
    require_running,
)
from highwater.cluster.links.link_rules import Links
from highwater.cluster.links.observer import Observer
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.links.rewriting import Address
from highwater.cluster.lives import DOWN, PAUSED, UP, Lives
from highwater.cluster.ports import free_ports
from highwater.cluster.remote.secured_target import ways_in
from highwater.kafka.wire.codec import BadMessage

if TYPE_CHECKING:
    from highwater.world.api import Network

COMMAND_S = 60.0
POLL_S = 0.1
STAYS_S = 0.3
"""For how long a connection has to stay open before it counts as a broker's."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The user's commands; each may use {id}, {host} and {port} of a broker, and {container} if it
    is in one.  Empty: there is no such command."""

    kill: str = ""
    stop: str = ""
    start: str = ""
    pause: str = ""
    resume: str = ""


def lacks_of(commands: Commands) -> dict[str, str]:
    """The faults that such a cluster cannot suffer or show, with the reason."""
    found = lacks(*IN_CONTAINERS, Kind.REMOTE)
    for name, verb in VERBS.items():
        if missing := [needed for needed in verb.commands if not getattr(commands, needed)]:
            found[name] = "give " + ", ".join(f"--{needed}-command" for needed in missing)
    return found


async def brokers_at(bootstrap: str, network: Network | None = None) -> dict[int, Address]:
    """The brokers of a cluster, by its first address that answers; raises StartError.

    `network` makes the connections: for a secured cluster, those of a client that logs in."""
    remedy, why = "start it, or give --target-config FILE where it asks for TLS or a login", ""
    for entry in bootstrap.split(","):
        host, _, port = entry.strip().rpartition(":")
        try:
            place = host.strip("[]"), int(port)
            if network is None:
                answer = await metadata(place, [], timeout_s=5)
            else:
                answer = await metadata(place, [], timeout_s=5, network=network)
        except (OSError, BadMessage, trio.BrokenResourceError) as error:
            why = f" ({error})" if network is not None else ""
            remedy = remedy if network is None else "start it, or correct --target-config"
            continue
        if answer.brokers:
            return {b.node_id: (b.host, b.port) for b in answer.brokers}
    raise StartError(f"no Kafka answers at {bootstrap}{why}: {remedy}")


class RemoteCluster:
    """See the module's docstring.  Made by `remote_cluster`."""

    runtime = "remote"
    zookeeper_connect = ""
    zookeeper_kind = ""

    def __init__(
        self,
        known: Mapping[int, Address],
        commands: Commands,
        containers: Mapping[int, str] | None = None,
        ways: Mapping[int, Address] | None = None,
    ) -> None:
        """`ways`: broker -> an address at which it needs no TLS or login, if it does at its own."""
        self.brokers = sorted(known)
        self.links: Links | None = Links()
        self.hosts: Hosts | None = None
        self.lives = Lives()
        self.lacks: Mapping[str, str] = lacks_of(commands)
        self._known = dict(known)
        self._own = dict(known if ways is None else ways)
        self._commands = commands
        self._containers = containers or {}
        self._down: set[str] = set()
        self._paused: set[str] = set()
        *ports, self._nowhere = free_ports(len(self.brokers) + 1)
        self._ports = dict(zip(self.brokers, ports, strict=True))
        for number in self.brokers:
            self.lives.note(broker(number), UP)

    # --- where things are

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[n]}" for n in self.brokers)

    @property
    def inner_bootstrap(self) -> str:
        return self.bootstrap

    @property
    def direct_bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for _, (host, port) in sorted(self._own.items()))

    def address(self, number: int) -> Address:
        return self._own[number]

    def members(self) -> list[str]:
        return [broker(n) for n in self.brokers]

    def running(self, member: str) -> bool:
        return member in self.members() and member not in self._down

    def paused(self, member: str) -> bool:
        return member in self._paused

    def pid_of(self, member: str) -> int | None:
        return None

    def port_of(self, member: str) -> int:
        return self._ports[broker_number(member)]

    def metrics_address(self, number: int) -> str | None:
        return None

    def write_state(self, **further: Any) -> None:
        """Writes nothing: no process of the harness outlives the run."""

    def data_dirs(self, number: int) -> list[Path]:
        return []

    def unexpected_ends(self) -> list[str]:
        return []

    def logged_exceptions(self) -> list[str]:
        return []

    # --- proxies

    async def serve(self, nursery: trio.Nursery, observer: Observer | None = None) -> None:
        assert self.links is not None
        for number, (host, port) in self._own.items():
            proxy = Proxy(
                self.links, port, owner=broker(number), zookeeper=False, host=host,
                replace=self._replace, observer=observer,
            )  # fmt: skip
            await nursery.start(proxy.serve, self._ports[number])

    def _replace(self, number: int | None, own: Address) -> Address:
        if number in self._ports:
            return "127.0.0.1", self._ports[number]
        for known, address in self._own.items():
            if address == own:
                return "127.0.0.1", self._ports[known]
        return "127.0.0.1", self._nowhere

    # --- verbs

    async def _run(self, name: str, member: str) -> int:
        """Carries out one of the user's commands; raises ClusterError with what it said."""
        number = broker_number(member)
        host, port = self._known[number]
        command: str = getattr(self._commands, name)
        if not command:
            raise ClusterError(f"{member} cannot be put through {name}: give --{name}-command")
        container = self._containers.get(number, "")
        values = {"id": number, "host": host, "port": port, "container": container}
        for word, value in values.items():
            command = command.replace(f"{{{word}}}", str(value))
        with trio.move_on_after(COMMAND_S):
            done = await trio.run_process(
                command, shell=True, check=False, stdin=subprocess.DEVNULL,
                capture_stdout=True, stderr=subprocess.STDOUT,
            )  # fmt: skip
            if done.returncode:
                said = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
                told = f": {said[0]}" if said else ""
                raise ClusterError(f"`{command}` ended with code {done.returncode}{told}")
            return 0
        raise ClusterError(f"`{command}` still runs after {COMMAND_S:g} s")

    async def kill(self, member: str) -> None:
        require_running(self, member)
        await self._run("kill", member)
        await self._gone(member)

    async def stop(self, member: str, timeout_s: float = PATIENCE_S) -> int:
        require_running(self, member)
        code = await self._run("stop", member)
        await self._gone(member)
        return code

    async def _gone(self, member: str) -> None:
        """Waits until nothing listens at the member's address: the user's command may return before
        the process has ended."""
        with trio.move_on_after(PATIENCE_S):
            while await self._listens(member):
                await trio.sleep(POLL_S)
            self._down.add(member)
            self._paused.discard(member)
            self.lives.note(member, DOWN)
            return
        raise ClusterError(f"{member} still listens {PATIENCE_S:g} s after the command to end it")

    async def _listens(self, member: str) -> bool:
        """Whether a connection to the member stays open.  Something in front of a dead broker (a
        proxy, a container's published port) may accept connections, too, but ends them."""
        with trio.move_on_after(1):
            try:
                stream = await trio.open_tcp_stream(*self._known[broker_number(member)])
            except OSError:
                return False
            async with stream:
                with trio.move_on_after(STAYS_S) as stays, suppress(trio.BrokenResourceError):
                    await stream.receive_some(1)  # a broker sends nothing before a request
                return stays.cancelled_caught
        return True

    async def start(self, member: str, ready: bool = True, timeout_s: float = PATIENCE_S) -> None:
        require_member(self, member)
        if self.running(member):
            raise ClusterError(f"{member} runs already")
        await self._run("start", member)
        self._down.discard(member)
        self.lives.note(member, UP)
        if ready:
            await self.wait_ready(member, timeout_s)

    async def wait_ready(self, member: str, timeout_s: float = PATIENCE_S) -> None:
        number = broker_number(member)
        with trio.move_on_after(timeout_s):
            while number not in await brokers_known(self._own[number]):
                await trio.sleep(POLL_S)
            return
        raise StartError(f"{member} does not serve {timeout_s:g} s after the command to start it")

    async def fill_disk(self, member: str) -> int:
        raise ClusterError(f"the disk of {member} cannot be filled: {self.lacks['disk_full']}")

    async def pause(self, member: str) -> None:
        require_running(self, member)
        await self._run("pause", member)
        self._paused.add(member)
        self.lives.note(member, PAUSED)

    async def resume(self, member: str) -> None:
        if member not in self._paused:
            return
        await self._run("resume", member)
        self._paused.discard(member)
        self.lives.note(member, UP)


@asynccontextmanager
async def remote_cluster(
    known: Mapping[int, Address],
    commands: Commands,
    containers: Mapping[int, str] | None = None,
    observer: Observer | None = None,
    ways: Mapping[int, Address] | None = None,
) -> AsyncIterator[RemoteCluster]:
    """A cluster whose proxies serve.  At the end, each process that a command has paused or killed
    is brought back, if there is a command for that."""
    cluster = RemoteCluster(known, commands, containers, ways)
    async with trio.open_nursery() as nursery:
        await cluster.serve(nursery, observer)
        try:
            yield cluster
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(PATIENCE_S):
                await _put_back(cluster, commands)
            nursery.cancel_scope.cancel()


async def _put_back(cluster: RemoteCluster, commands: Commands) -> None:
    assert cluster.links is not None
    cluster.links.heal_all()
    for member in cluster.members():
        try:
            if cluster.paused(member):
                await cluster.resume(member)
            elif not cluster.running(member) and commands.start:
                await cluster.start(member, ready=False)
        except ClusterError:
            continue  # the run has ended; the user sees it in the cluster's own state


@dataclass(frozen=True, slots=True)
class AddressTarget:
    """Any cluster at HOST:PORT; `known` is read from it before the run."""

    bootstrap: str
    known: dict[int, Address]
    commands: Commands = field(default_factory=Commands)
    shared: bool = True
    containers: Mapping[int, str] = field(default_factory=dict)
    """Broker -> its container, for a Compose project; `bootstrap` is then the project's file."""
    network: Network | None = None
    """Makes a client's connections, if the cluster requires TLS or a login."""

    def __str__(self) -> str:
        return f"the {'project of' if self.containers else 'cluster at'} {self.bootstrap}"

    @property
    def brokers(self) -> list[int]:
        return sorted(self.known)

    @property
    def controllers(self) -> list[str]:
        """None: controllers in processes of their own answer no clients, so they are not known."""
        return []

    @property
    def lacks(self) -> Mapping[str, str]:
        return lacks_of(self.commands)

    @asynccontextmanager
    async def open(self, folder: Path, properties: Mapping[str, str]) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            ways = None
            if self.network is not None:
                ways = await stack.enter_async_context(ways_in(self.known, self.network))
            yield await stack.enter_async_context(
                remote_cluster(self.known, self.commands, self.containers, ways=ways)
            )
