"""Sessions of the simulated ZooKeeper: the part between a client and the `Ensemble`.

Theory of operation.  A session has one connection at a time, with a queue of requests on the way up
and one of answers and watch events on the way down.  Both keep their order, and both wait while the
link is cut, as TCP's would.  Pings keep the session alive at the server.  When none has come back
for two thirds of the session's time-out, the client drops the connection: every unanswered request
fails with ConnectionLoss, and chance decides whether the server carried it out (a prefix of them
arrives).  The client then connects again, and learns whether its session still lives. Requests made
meanwhile wait for that.  After a reconnection every watch is called once, as in the real one
(`world.real.zookeeper`).

A watch may reach the program later than an answer that came after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from highwater.world.api import (
    Check,
    ConnectionLoss,
    Create,
    Delete,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    Watcher,
    WatchEvent,
    WatchKind,
    ZkError,
    ZkOp,
)
from highwater.world.sim.kernel import Kernel
from highwater.world.sim.network import Fabric
from highwater.world.sim.process import Host, Process
from highwater.world.sim.zookeeper_channel import Call, Channel
from highwater.world.sim.zookeeper_server import Ensemble, Session

_POLL_SECONDS = 0.02
_CLOSE_SECONDS = 2.0
_LATE_WATCH_ONE_IN = 8
_LATE_WATCH_SECONDS = 0.02


class ZooKeeperService:
    """The simulated ensemble on its machine, with faults."""

    def __init__(self, kernel: Kernel, fabric: Fabric, host: Host) -> None:
        self.kernel = kernel
        self.fabric = fabric
        self.host = host
        self.random = kernel.random("zookeeper")
        self.ensemble = Ensemble(lambda: int(kernel.timeline.now * 1000))
        self.slow_s = 0.0
        self.clients: dict[int, SimZooKeeper] = {}
        self.on_write: list[Callable[[str, str], None]] = []
        """Called after each change with its path and its author."""

    def delay(self, source: Host, target: Host) -> float:
        link = self.fabric.link(source, target)
        slow = self.random.uniform(0, self.slow_s) if self.slow_s else 0.0
        return self.random.uniform(*link.delay_s) + slow

    def open_between(self, source: Host, target: Host) -> bool:
        return self.host.up and not self.fabric.link(source, target).cut

    # -- faults ---------------------------------------------------------------------------------

    def expire(self, session_id: int) -> None:
        """The server ends the session, as if it had been silent for too long."""
        gone = self.ensemble.end_session(session_id)
        self.kernel.note("zk expire", session_id, gone)
        self._tell(gone, "expiry")
        client = self.clients.pop(session_id, None)
        if client is not None:
            client.server_closed()

    def delete(self, path: str) -> None:
        """Removes a znode, as by hand."""
        session = self.ensemble.open_session(10_000).id
        self.ensemble.write(session, Delete(path))
        self._tell([path], "an operator")
        self.ensemble.end_session(session)

    def break_connections(self) -> None:
        """The server was restarted: sessions live on, connections do not."""
        for client in list(self.clients.values()):
            self._touch(client.session_id)
            client.drop()

    # -- the server's side ----------------------------------------------------------------------

    def admit(self, client: SimZooKeeper, timeout_ms: int) -> Session:
        session = self.ensemble.open_session(timeout_ms)
        self.clients[session.id] = client
        self._touch(session.id)
        self._watch_expiry(session.id)
        return session

    def _touch(self, session_id: int) -> None:
        session = self.ensemble.sessions.get(session_id)
        if session is not None:
            session.expires_at = self.kernel.timeline.now + session.timeout_ms / 1000

    def _watch_expiry(self, session_id: int) -> None:
        session = self.ensemble.sessions.get(session_id)
        if session is None:
            return
        now = self.kernel.timeline.now
        if not self.host.up:  # sessions do not age while the ensemble is down
            session.expires_at = now + session.timeout_ms / 1000
        if now >= session.expires_at:
            self.expire(session_id)
        else:
            self.kernel.timeline.at(session.expires_at, self._watch_expiry, session_id)

    def handle(self, client: SimZooKeeper, channel: Channel, call: Call) -> None:
        """One request has arrived; `channel` is the way back on its connection."""
        if call.lost:
            return
        self._touch(client.session_id)
        error: ZkError | None = None
        result: Any = None
        if call.what != "ping":
            try:
                result = self._apply(client, call)
            except ZkError as failed:
                error = failed
            call.applied = True
            self.kernel.note("zk", client.session_id, call.what, call.path, type(error).__name__)
        channel.send(client.answered, call, result, error)

    def _apply(self, client: SimZooKeeper, call: Call) -> Any:
        ensemble, watch = self.ensemble, call.watcher is not None
        session_id, who = client.session_id, str(client.process)
        match call.what:
            case "get":
                return ensemble.get(session_id, call.path, watch)
            case "exists":
                return ensemble.exists(session_id, call.path, watch)
            case "children":
                return ensemble.children(session_id, call.path, watch)
            case "write":
                result: Any = ensemble.write(session_id, call.body)
                self._tell([result[0] if isinstance(result, tuple) else call.path], who)
                return result
            case "multi":
                results = ensemble.multi(session_id, call.body)
                self._tell([op.path for op in call.body if not isinstance(op, Check)], who)
                return results
            case "close":
                self._tell(ensemble.end_session(session_id), who)
                self.clients.pop(session_id, None)
                return None
        raise AssertionError(call.what)

    def _tell(self, paths: Sequence[str], who: str) -> None:
        for session_id, event in self.ensemble.take_fired():
            client = self.clients.get(session_id)
            if client is not None:
                client.notify(event)
        for path in paths:
            for observer in self.on_write:
                observer(path, who)


class SimZooKeeper:
    """`world.api.ZooKeeper`: one session of one process."""

    def __init__(self, service: ZooKeeperService, process: Process, chroot: str = "") -> None:
        self.session_id = 0
        self.session_timeout_ms = 0
        self.on_session: list[Callable[[SessionState], None]] = []
        self.expired = False
        self._service = service
        self.process = process
        self._timeline = service.kernel.timeline
        self._chroot = chroot
        self._up: Channel
        self._down: Channel
        self._connected = False
        self._ended = False
        self._heard = 0.0
        self._connection = 0
        self._pending: deque[Call] = deque()
        self._queued: deque[Call] = deque()
        self._data: dict[str, list[Watcher]] = {}
        self._child: dict[str, list[Watcher]] = {}
        self._stranded: list[tuple[Watcher, WatchEvent]] = []
        self._last_watch = 0.0
        process.on_death[self] = self._died

    # -- the session ----------------------------------------------------------------------------

    async def open(self, timeout_ms: int, connection_timeout_ms: int) -> None:
        service, host = self._service, self.process.host
        self.process.check()
        with trio.move_on_after(connection_timeout_ms / 1000):
            while not service.fabric.passable(host, service.host):
                await trio.sleep(_POLL_SECONDS)
            await trio.sleep(service.delay(host, service.host))
            if service.fabric.passable(host, service.host):
                session = service.admit(self, timeout_ms)
                self.session_id, self.session_timeout_ms = session.id, session.timeout_ms
                self._connect()
        self.process.check()
        if not self.session_id:
            raise ConnectionLoss(detail="no ZooKeeper answered within the connection time-out")

    def _connect(self) -> None:
        host, server = self.process.host, self._service.host
        self._up = Channel(self._service, host, server)
        self._down = Channel(self._service, server, host)
        self._connected = True
        self._heard = self._timeline.now
        self._connection += 1
        self._timeline.after(self.session_timeout_ms / 3000, self._ping, self._connection)

    def _ping(self, connection: int) -> None:
        if connection != self._connection or not self._connected or not self.process.alive:
            return
        if not self.process.frozen:
            if self._timeline.now - self._heard > self.session_timeout_ms / 1500:
                self.drop()
                return
            self._send(Call("ping", ""))
        self._timeline.after(self.session_timeout_ms / 3000, self._ping, connection)

    def drop(self) -> None:
        """Drops the connection, whatever the reason."""
        if not self._connected or not self.process.alive:
            return
        self._connected = False
        self._down.close()
        on_way = [call for call in self._pending if not call.applied]
        arriving = self._service.random.randint(0, len(on_way))
        for call in on_way[arriving:]:
            call.lost = True
        for call in (*self._pending, *self._queued):
            call.fail(ConnectionLoss(call.path))
        self._pending.clear()
        self._queued.clear()
        self._strand()
        self._service.ensemble.forget_watches(self.session_id)
        self.process.call(self._enter, SessionState.SUSPENDED)
        self._timeline.after(self._service.random.uniform(0.01, 0.2), self._reconnect)

    def server_closed(self) -> None:
        """The server closed the connection (the session expired there)."""
        if self._connected:
            self._down.send(self.drop)

    def _strand(self) -> None:
        for watchers, kind in ((self._data, WatchKind.CHANGED), (self._child, WatchKind.CHILD)):
            for path in sorted(watchers):
                self._stranded += [(watcher, WatchEvent(kind, path)) for watcher in watchers[path]]
            watchers.clear()

    def _reconnect(self) -> None:
        service, host = self._service, self.process.host
        if self._connected or self._ended or not self.process.alive:
            return
        if self.process.frozen or not service.fabric.passable(host, service.host):
            self._timeline.after(service.random.uniform(0.05, 0.3), self._reconnect)
            return
        if self.session_id not in service.ensemble.sessions:
            self.process.call(self._enter, SessionState.EXPIRED)
            return
        service._touch(self.session_id)
        self._connect()
        self.process.call(self._enter, SessionState.CONNECTED)
        stranded, self._stranded = self._stranded, []
        for watcher, event in stranded:
            self.process.call(watcher, event)
        queued, self._queued = self._queued, deque()
        for call in queued:
            self._send(call)

    def _enter(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.expired = self._ended = True
            for call in self._queued:
                call.fail(SessionExpired(call.path))
            self._queued.clear()
            self.process.on_death.pop(self, None)
        for callback in list(self.on_session):
            callback(state)

    def _died(self, goodbye: bool) -> None:
        self._ended = True
        for call in (*self._pending, *self._queued):
            call.fail(ConnectionLoss(call.path))

    async def close(self) -> None:
        """Ends the session: its ephemerals vanish at once."""
        if not self.process.alive or self._ended:
            return
        with trio.CancelScope(shield=True), trio.move_on_after(_CLOSE_SECONDS):
            try:
                await self._call(Call("close", ""))
            except ZkError:
                pass
        self._ended = True
        self.process.on_death.pop(self, None)

    # -- requests -------------------------------------------------------------------------------

    def _send(self, call: Call) -> None:
        self._pending.append(call)
        self._up.send(self._service.handle, self, self._down, call)

    async def _call(self, call: Call) -> Any:
        self.process.check()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.expired:
            raise SessionExpired(call.path)
        if self._ended:
            raise ConnectionLoss(call.path, "this session was closed")
        if self._connected:
            self._send(call)
        else:
            self._queued.append(call)
        await call.done.wait()
        self.process.check()
        if call.error is not None:
            raise type(call.error)(self._outer(call.error.path))
        return call.result

    def answered(self, call: Call, result: Any, error: ZkError | None) -> None:
        self._heard = self._timeline.now
        if not self.process.alive or call not in self._pending:
            return
        self._pending.remove(call)
        call.result, call.error = result, error
        if call.watcher is not None and error is None:
            watchers = self._child if call.what == "children" else self._data
            watchers.setdefault(call.path, []).append(call.watcher)
        call.done.set()

    def notify(self, event: WatchEvent) -> None:
        """Fires a watch on the server's side."""
        if self._connected:
            self._down.send(self._notified, event)

    def _notified(self, event: WatchEvent) -> None:
        """Tells the program now, or a little later."""
        if self._ended:
            return
        watchers: list[Watcher] = []
        if event.kind is not WatchKind.CHILD:
            watchers += self._data.pop(event.path, [])
        if event.kind in (WatchKind.CHILD, WatchKind.DELETED):
            watchers += self._child.pop(event.path, [])
        outer = WatchEvent(event.kind, self._outer(event.path))
        random, late = self._service.random, 0.0
        if random.randrange(_LATE_WATCH_ONE_IN) == 0:
            late = random.uniform(0, _LATE_WATCH_SECONDS)
        self._last_watch = max(self._last_watch, self._timeline.now + late)
        for watcher in watchers:
            if self._last_watch > self._timeline.now:
                self._timeline.at(self._last_watch, self.process.call, watcher, outer)
            else:
                self.process.call(watcher, outer)

    # -- operations -----------------------------------------------------------------------------

    def _inner(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _outer(self, path: str) -> str:
        return path[len(self._chroot) :] or "/" if path.startswith(self._chroot) else path

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        inner = self._inner(path)
        call = Call("write", inner, Create(inner, bytes(data), ephemeral, sequential))
        created, stat = await self._call(call)
        return self._outer(created), stat

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        data, stat = await self._call(Call("get", self._inner(path), None, watch))
        return data, stat

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        found: Stat | None = await self._call(Call("exists", self._inner(path), None, watch))
        return found

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        names: list[str] = await self._call(Call("children", self._inner(path), None, watch))
        return names

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        inner = self._inner(path)
        stat: Stat = await self._call(Call("write", inner, SetData(inner, bytes(data), version)))
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        inner = self._inner(path)
        await self._call(Call("write", inner, Delete(inner, version)))

    async def multi(self, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        inner = [_with_path(op, self._inner(op.path)) for op in ops]
        results: list[Stat | str | None] = await self._call(
            Call("multi", inner[0].path if inner else "", inner)
        )
        return [self._outer(r) if isinstance(r, str) else r for r in results]


def _with_path(op: ZkOp, path: str) -> ZkOp:
    if isinstance(op, Create):
        return Create(path, bytes(op.data), op.ephemeral, op.sequential)
    if isinstance(op, SetData):
        return SetData(path, bytes(op.data), op.version)
    return type(op)(path, op.version)


@asynccontextmanager
async def open_zookeeper(
    service: ZooKeeperService,
    process: Process,
    connect: str,
    session_timeout_ms: int,
    connection_timeout_ms: int,
) -> AsyncIterator[SimZooKeeper]:
    """Opens one session; raises ConnectionLoss where no server answered in time."""
    _, slash, chroot = connect.partition("/")
    session = SimZooKeeper(service, process, slash + chroot if chroot else "")
    try:
        await session.open(session_timeout_ms, connection_timeout_ms)
        await _make_chroot(session)
        yield session
    finally:
        await session.close()


async def _make_chroot(session: SimZooKeeper) -> None:
    chroot, session._chroot = session._chroot, ""
    parts = [part for part in chroot.split("/") if part]
    for depth in range(1, len(parts) + 1):
        path = "/" + "/".join(parts[:depth])
        if await session.exists(path) is None:
            await session.create(path)
    session._chroot = chroot
