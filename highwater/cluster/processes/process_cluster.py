"""The process runtime: ZooKeeper and brokers as processes on 127.0.0.1.

Theory of operation.  A cluster lives in one folder: `state.json` (pids with start times, ports),
`lock` (held as long as the supervisor lives, so that two cannot share a folder), `zookeeper/` and
`broker-N/` (properties, data, output).  Ports are chosen once and written into state.json, so that
a broker keeps its port over restarts, and a cluster over `down` and `up`.

Every broker has three listeners: INTERNAL between brokers, CONTROL for the controller's requests,
EXTERNAL for clients.  A program in KRaft mode has CONTROLLER instead of CONTROL, and no ZooKeeper
beside it; where its controllers are apart, each has the port CONTROLLER of one of the brokers, and
is a member of its own.  With `links`, each listener is advertised as the port of a proxy, and each
broker reaches ZooKeeper through a proxy of its own; with `lends`, Highwater's brokers listen at
those ports themselves until a fault touches a link.  Everything starts at the same moment, because
brokers wait for ZooKeeper themselves.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import trio

from highwater.child_processes import Child, StartError, Watchdog, kill_listed, take_lock
from highwater.cluster import client_files, internal_topics
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.hosts import Hosts, refuse_writes
from highwater.cluster.interface import (
    ELSEWHERE,
    PATIENCE_S,
    ZOOKEEPER,
    ClusterError,
    broker,
    broker_number,
    controller,
    require_awake,
    require_member,
    require_running,
)
from highwater.cluster.links.link_rules import Links
from highwater.cluster.lives import PAUSED, UP
from highwater.cluster.ports import claimed, listens
from highwater.cluster.processes import (
    forked_members,
    kraft,
    process_ports,
    server_properties,
    zookeeper_choice,
)
from highwater.cluster.processes import zookeeper_process as zookeeper
from highwater.cluster.processes.forked_members import Forks, Mother
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import Highwater
from highwater.cluster.shared import SECURE, LocalCluster, Ports
from highwater.world.real.borrowed_sockets import VARIABLE

_TICK_MS = {"test": 500, "kafka": 2000}


def _chosen_zookeeper(settings: Settings) -> str:
    """The kind of ZooKeeper that a new cluster gets, if its settings name none: Java's, if znodes
    shall belong to the brokers' user, because that needs SASL; else the embedded one."""
    own_user = settings.properties.get("zookeeper.set.acl", "").lower() == "true"
    own_user |= "java.security.auth.login.config" in os.environ.get("KAFKA_OPTS", "")
    asked = zookeeper_choice.checked(settings.zookeeper)
    if own_user and asked == zookeeper_choice.EMBEDDED:
        raise StartError(
            "the embedded ZooKeeper knows no users, and zookeeper.set.acl or KAFKA_OPTS's JAAS file"
            " need one: leave them out, or use --zookeeper java"
        )
    kind = zookeeper_choice.JAVA if own_user else zookeeper_choice.EMBEDDED
    return zookeeper_choice.chosen(settings.folder / ZOOKEEPER, asked, kind)


async def _ready(mother: Mother | None) -> Mother | None:
    """Waits until `mother` can fork members; None if it cannot (they are then started by exec)."""
    if mother is not None and await trio.to_thread.run_sync(mother.ready):
        return mother
    return None


class ProcessCluster(LocalCluster):
    """See the module's docstring.  Made by `process_cluster`."""

    runtime = "process"
    poll_s = 0.02

    def __init__(self, settings: Settings, lock: IO[str]) -> None:
        assert not (settings.proxies and settings.between_secured)
        self.settings = settings
        self._lock = lock
        self._children: dict[str, Child] = {}
        encrypted = client_files.encrypted(settings.security)
        links = Links(encrypted_clients=encrypted) if settings.proxies else None
        self._controllers = {controller(n): n for n in settings.controllers}
        self._zookeeper = "" if settings.kraft else _chosen_zookeeper(settings)
        elsewhere = zookeeper_choice.is_elsewhere(self._zookeeper)
        self.zookeeper_kind = ELSEWHERE if elsewhere else self._zookeeper
        super().__init__(settings.folder, range(1, settings.brokers + 1), links)
        if links is not None:
            links.names |= {broker(n): name for name, n in self._controllers.items()}
        if settings.proxies:
            self.hosts = Hosts(self.folder, settings.numbers_of("highwater"))

    # --- where things are

    @property
    def bootstrap(self) -> str:
        if self.settings.secured:
            ports = (of.advertised[SECURE] for of in self._ports.values())
            return ",".join(f"127.0.0.1:{port}" for port in ports)
        return ",".join(self.settings.advertised) or super().bootstrap

    @property
    def zookeeper_connect(self) -> str:
        if self.settings.kraft:
            return ""
        elsewhere = self.zookeeper_kind == ELSEWHERE
        return self._zookeeper if elsewhere else super().zookeeper_connect

    def _zookeepers(self) -> list[tuple[str, int]]:
        if self.zookeeper_kind != ELSEWHERE:
            return super()._zookeepers()
        return zookeeper_choice.addresses(self._zookeeper)[0]

    def _zookeeper_of(self, number: int) -> str:
        """A broker's zookeeper.connect: the address of its proxy, if there are proxies."""
        if self.zookeeper_kind != ELSEWHERE:
            return f"127.0.0.1:{self._ports[number].zookeeper}"
        if not self.settings.proxies:
            return self._zookeeper
        chroot = zookeeper_choice.addresses(self._zookeeper)[1]
        return f"127.0.0.1:{self._ports[number].zookeeper}{chroot}"

    @property
    def inner_bootstrap(self) -> str:
        """The bootstrap servers on this machine, without security.  If other addresses are
        advertised, which may not be reachable from here, it is the listener between brokers."""
        if not self.settings.advertised:
            return super().bootstrap
        return ",".join(f"127.0.0.1:{of.advertised['INTERNAL']}" for of in self._ports.values())

    def members(self) -> list[str]:
        return [*super().members(), *self._controllers]

    def _lends_to(self, number: int) -> bool:
        settings = self.settings
        ours = settings.program_of(number) == Highwater() and not settings.secured
        return settings.lends and ours and sys.platform == "linux"

    def _owner(self, number: int, listener: str) -> str:
        if listener != server_properties.CONTROLLER or not self._controllers:
            return super()._owner(number, listener)
        return [*self._controllers][self.brokers.index(number)]

    def _beside(self, member: str) -> Ports:
        """The ports of the broker beside this controller; the controller's own is among them."""
        return self._ports[self.brokers[[*self._controllers].index(member)]]

    def metrics_port(self, number: int) -> int:
        return self._ports[number].metrics

    def metrics_address(self, number: int) -> str | None:
        """host:port of a broker's metrics and traces; None where it has none."""
        if self.settings.program_of(number).name != "highwater":
            return None
        given = self.settings.properties
        port = int(given.get("highwater.metrics.port", self.metrics_port(number)))
        if port < 0:
            return None
        host = given.get("highwater.metrics.host") or "127.0.0.1"
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def port_of(self, member: str) -> int:
        if member in self._controllers:
            return self._beside(member).advertised[server_properties.CONTROLLER]
        if member == ZOOKEEPER or not self.settings.secured:
            return super().port_of(member)
        return self._ports[broker_number(member)].advertised[SECURE]

    def member_folder(self, member: str) -> Path:
        return self.folder / member

    def output(self, member: str) -> Path:
        return self.member_folder(member) / "output.log"

    def running(self, member: str) -> bool:
        child = self._children.get(member)
        return child is not None and child.running

    def paused(self, member: str) -> bool:
        child = self._children.get(member)
        return child is not None and child.paused

    def pid(self, member: str) -> int:
        return self._child(member).pid.pid

    def pid_of(self, member: str) -> int | None:
        return self.pid(member) if self.running(member) else None

    def unexpected_ends(self) -> list[str]:
        return [
            f"{name} ended with code {child.popen.returncode}: {child.last_words()}"
            for name, child in sorted(self._children.items())
            if name in self._wanted and not child.running
        ]

    def broker_output(self, number: int) -> str:
        path = self.output(broker(number))
        return path.read_text(errors="replace") if path.exists() else ""

    def _choose_ports(self) -> tuple[int, dict[int, Ports]]:
        elsewhere = self.zookeeper_kind == ELSEWHERE
        return process_ports.choose(self.settings, self.brokers, with_zookeeper=not elsewhere)

    # --- starting and stopping the whole

    async def start_all(self, timeout_s: float = PATIENCE_S) -> None:
        """Starts all members at once; returns when every broker knows every broker."""
        forks = forked_members.taken()
        try:
            await self._start_all(forks, timeout_s)
        finally:
            if forks is not None:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(forks.close)

    async def _start_all(self, forks: Forks | None, timeout_s: float) -> None:
        if self.settings.kraft:
            await self._format_storage()
        elif self.zookeeper_kind == ELSEWHERE:
            await self._find_zookeeper()
        else:
            await self._spawn(ZOOKEEPER, await _ready(forks.zookeeper if forks else None))
        if self._zookeeper:
            zookeeper_choice.remember(self.member_folder(ZOOKEEPER), self._zookeeper)
            if self.settings.secured or self.settings.scram:
                await self._store_users(timeout_s)
        mother = await _ready(forks.brokers if forks else None)
        for member in self.members():
            if member != ZOOKEEPER:
                await self._spawn(member, mother)
        await self._wait_ready(self.brokers, set(self.brokers), timeout_s)

    async def _find_zookeeper(self) -> None:
        for host, port in self._zookeepers():
            if await trio.to_thread.run_sync(zookeeper.accepts, host, port):
                return
        raise StartError(f"no ZooKeeper answers at {self._zookeeper}: start it, or correct it")

    async def _format_storage(self) -> None:
        program, cluster_id = self.settings.program, kraft.cluster_id()
        commands = {}
        for member in self.members():
            folder = self.member_folder(member)
            folder.mkdir(parents=True, exist_ok=True)
            commands[folder] = program.format_command(self._write_properties(member), cluster_id)
        await kraft.format_storage(commands, program.environment())

    async def _store_users(self, timeout_s: float) -> None:
        from highwater.cluster.processes import scram, secured  # late: this loads cryptography

        given = self.settings.scram
        own = secured.prepare(self.folder, self.bootstrap, self.settings.security)
        if own or given:
            if ZOOKEEPER in self.members():
                await self.wait_ready(ZOOKEEPER, timeout_s)
            await trio.to_thread.run_sync(scram.store, self.zookeeper_connect, given, own)

    async def stop_all(self, timeout_s: float = 15) -> None:
        """Stops brokers by controlled shutdown, then ZooKeeper; SIGKILL for late processes."""
        self._wanted.clear()
        if self.settings.quick_end:
            timeout_s = 0
        brokers = [c for name, c in self._children.items() if name != ZOOKEEPER]
        others = [c for name, c in self._children.items() if name == ZOOKEEPER]
        for children, limit_s in ((brokers, timeout_s), (others, min(timeout_s, 5))):
            for child in children:
                child.signal(signal.SIGCONT)
                child.signal(signal.SIGTERM)
            await self._end(children, limit_s)
        self._further.clear()
        self.write_state()

    async def _end(self, children: list[Child], timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            while any(c.running for c in children):
                await trio.sleep(self.poll_s)
        for child in children:
            child.signal(signal.SIGKILL)
        for child in children:
            child.wait(10)

    # --- verbs

    async def kill(self, member: str) -> None:
        require_running(self, member)
        child = self._children[member]
        self._wanted.discard(member)
        child.signal(signal.SIGKILL)
        await self._end([child], 10)
        self.lives.look(self.running)
        self.write_state()

    async def stop(self, member: str, timeout_s: float = PATIENCE_S) -> int:
        require_awake(self, member)
        self._wanted.discard(member)
        self._children[member].signal(signal.SIGTERM)
        code = await self._exit_code(member, timeout_s)
        if code is None:
            raise ClusterError(f"{member} still runs {timeout_s:g} s after SIGTERM")
        return code

    async def _exit_code(self, member: str, timeout_s: float) -> int | None:
        """Waits for the end of a member; None where it still runs after the time."""
        child = self._children[member]
        with trio.move_on_after(timeout_s):
            while child.running:
                await trio.sleep(self.poll_s)
        if not child.running:
            self.lives.look(self.running)
            self.write_state()
        return child.popen.poll()

    def _kinds(self) -> Sequence[Kind]:
        ours = self.settings.numbers_of("highwater")
        doorless, foreign = self.hosts is None or not ours, len(ours) < len(self.brokers)
        return [*[Kind.DOORLESS] * doorless, *[Kind.FOREIGN] * foreign]

    async def fill_disk(self, member: str) -> int:
        require_awake(self, member)
        allow = refuse_writes(self.pid(member))
        self._wanted.discard(member)
        code = await self._exit_code(member, PATIENCE_S)
        if code is None:
            allow()
            self._wanted.add(member)
            raise ClusterError(f"{member} wrote nothing within {PATIENCE_S:g} s, and runs on")
        return code

    async def start(self, member: str, ready: bool = True, timeout_s: float = PATIENCE_S) -> None:
        require_member(self, member)
        if self.running(member):
            raise ClusterError(f"{member} runs already")
        await self._spawn(member)
        if not ready:
            return
        if member == ZOOKEEPER or member in self._controllers:
            await self.wait_ready(member, timeout_s)
            return
        number = broker_number(member)
        deadline = trio.current_time() + timeout_s
        while True:
            try:
                await self._wait_ready([number], {number}, deadline - trio.current_time())
                return
            except StartError:
                child = self._child(member)
                program = self.settings.program_of(number)
                refused = program.registration_refused in child.new_output()
                if child.running or not refused or trio.current_time() > deadline:
                    raise
                self.lives.look(self.running)
                await trio.sleep(0.5)  # until the killed predecessor's session has expired
                await self._spawn(member)

    async def wait_ready(self, member: str, timeout_s: float = PATIENCE_S) -> None:
        if member == ZOOKEEPER:
            answers = partial(zookeeper.answers, self._zookeeper_port)
        elif member in self._controllers:
            port = self._beside(member).bound[server_properties.CONTROLLER]
            answers = partial(listens, port)
        else:
            number = broker_number(member)
            await self._wait_ready([number], {number}, timeout_s)
            return
        with trio.move_on_after(timeout_s):
            while not await trio.to_thread.run_sync(answers):
                self._require_running(member)
                await trio.sleep(self.poll_s)
            return
        raise ClusterError(f"{member} does not answer after {timeout_s:g} s")

    async def pause(self, member: str) -> None:
        require_running(self, member)
        await self._signal_until(member, signal.SIGSTOP, paused=True)
        if self.paused(member):
            self.lives.note(member, PAUSED)

    async def resume(self, member: str) -> None:
        await self._signal_until(member, signal.SIGCONT, paused=False)
        if self.running(member) and not self.paused(member):
            self.lives.note(member, UP)

    async def _signal_until(self, member: str, number: signal.Signals, paused: bool) -> None:
        child = self._child(member)
        child.signal(number)
        with trio.move_on_after(5):
            while child.running and child.paused is not paused:
                await trio.sleep(self.poll_s)

    # --- inside

    def _child(self, member: str) -> Child:
        require_member(self, member)
        return self._children[member]

    async def _spawn(self, member: str, mother: Mother | None = None) -> None:
        folder = self.member_folder(member)
        folder.mkdir(parents=True, exist_ok=True)
        env: Mapping[str, str] = os.environ
        if member == ZOOKEEPER:
            ours = self._zookeeper == zookeeper_choice.EMBEDDED
            tick = _TICK_MS.get(self.settings.profile, 2000)
            command = zookeeper.start_of(
                self._zookeeper, folder, self._zookeeper_port, tick, self.settings.zookeeper_sync
            )
        else:
            program = self.settings.program
            if member not in self._controllers:
                program = self.settings.program_of(broker_number(member))
            ours = program == Highwater()
            command = program.command(self._write_properties(member), self.settings.profile)
            env = program.environment()
            if self.hosts is not None and member not in self._controllers:
                env = {**env, **self.hosts.environment(broker_number(member))}
            if member in self._lenders:
                env = {**env, VARIABLE: str(self._lenders[member].path)}
        output, forked = self.output(member), None
        if mother is not None and ours:
            forked = await trio.to_thread.run_sync(mother.fork, command, output, folder, env)
        self._children[member] = Child(
            member, command, output=output, cwd=folder, env=env, forked=forked
        )
        self.lives.note(member, UP)
        self._wanted.add(member)
        self.write_state()

    def _write_properties(self, member: str) -> Path:
        if member in self._controllers:
            return self._write_controller_properties(member)
        number = broker_number(member)
        settings, ports = self.settings, self._ports[number]
        folder = self.member_folder(member)
        factor = min(3, len(self.brokers))
        outside = {}
        if settings.advertised:
            outside["EXTERNAL"] = settings.advertised[self.brokers.index(number)]
        data = self.data_dirs(number)[0]
        with_security = (SECURE, *settings.between_secured) if settings.secured else ()
        protocols = dict.fromkeys(with_security, settings.security.upper())
        properties = server_properties.common(ports, data, len(self.brokers), protocols)
        if settings.kraft:
            metadata = folder / "metadata"
            properties |= server_properties.kraft(
                number, self._ports, outside, metadata, settings.controllers
            )
        else:
            properties |= server_properties.with_zookeeper(
                number, ports, self._zookeeper_of(number), outside
            )
        if settings.profile == "test":
            # if all brokers stop at once, the last ones have nobody to hand their leaderships to
            properties["controlled.shutdown.retry.backoff.ms"] = "300"
        if settings.program_of(number).name == "highwater":
            properties["highwater.metrics.port"] = str(ports.metrics)
        program = settings.program_of(number)
        properties |= program.prepare(folder, len(self.brokers), settings.profile)
        if factor < 3:
            properties |= internal_topics.properties(factor)
        if settings.secured:
            from highwater.cluster.processes import secured  # late: this loads cryptography

            properties |= secured.properties(
                self.folder, SECURE, settings.security, settings.between_secured
            )
        properties |= settings.properties
        path = folder / "server.properties"
        client_files.write(path, "".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _write_controller_properties(self, member: str) -> Path:
        settings, folder = self.settings, self.member_folder(member)
        ports, number = self._beside(member), self._controllers[member]
        properties = server_properties.common(ports, folder / "data", len(self.brokers), {})
        del properties["inter.broker.listener.name"]  # a controller has no such listener
        properties |= server_properties.kraft_controller(
            number, self._ports, folder / "metadata", settings.controllers
        )
        properties |= settings.program.prepare(folder, len(self.brokers), settings.profile)
        properties |= settings.properties
        path = folder / "server.properties"
        client_files.write(path, "".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _require_running(self, member: str) -> None:
        child = self._child(member)
        if not child.running:
            raise StartError(
                f"{member} ended with code {child.popen.returncode}: {child.last_words()}"
                f" (all of it in {child.output})"
            )

    async def _require_alive(self, numbers: Sequence[int]) -> None:
        for member in (ZOOKEEPER, *self._controllers, *(broker(n) for n in numbers)):
            if member in self._wanted:
                self._require_running(member)

    def state(self) -> dict[str, Any]:
        running = {n: child.pid.as_json() for n, child in self._children.items() if child.running}
        own = {"program": self.settings.program.name, "processes": running}
        if self._controllers:
            listener = server_properties.CONTROLLER
            beside = {name: self._beside(name) for name in self._controllers}
            own["controllers"] = {
                name: {"bound": ports.bound[listener], "advertised": ports.advertised[listener]}
                for name, ports in beside.items()
            }
        return {**super().state(), **own}


@asynccontextmanager
async def process_cluster(
    settings: Settings, timeout_s: float = PATIENCE_S
) -> AsyncIterator[ProcessCluster]:
    """A running cluster; no process is left behind, whatever happens."""
    if settings.internal_topics:
        internal_topics.require_room(settings.properties, settings.brokers)
    with ExitStack() as held:
        lock = held.enter_context(take_lock(settings.folder))
        kill_listed(settings.folder / "state.json")  # left behind by a killed supervisor
        held.enter_context(claimed(settings.external_ports, settings.folder))
        cluster = ProcessCluster(settings, lock)
        cluster.write_state()
        watchdog = Watchdog(settings.folder / "state.json")
        try:
            async with trio.open_nursery() as nursery:
                try:
                    everywhere = ("0.0.0.0",) if settings.advertised else ()
                    await cluster.serve_proxies(nursery, external=everywhere)
                    await cluster.start_all(timeout_s)
                    if settings.internal_topics:
                        await internal_topics.create(cluster, timeout_s)
                    yield cluster
                finally:
                    with trio.CancelScope(shield=True):
                        if cluster.links is not None:
                            cluster.links.heal_all()
                        await cluster.stop_all()
                    nursery.cancel_scope.cancel()
        finally:
            watchdog.close()
