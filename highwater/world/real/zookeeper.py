"""ZooKeeper through kazoo, brought into trio: one object is one session.

Theory of operation.  kazoo runs one thread of its own, the connection thread, which reads answers,
watches and changes of the session in the order in which the server sent them.  Its usual handler
then spreads them over two more threads, and that order is lost.  `_TrioHandler` replaces that
handler: everything goes through `token.run_sync_soon` into the trio thread, one queue for all
three, so nothing here needs a lock and the server's order is kept.

kazoo would open a new session on its own once the old one has expired.  A broker must not live on
in a session that it does not know of (its ephemerals are gone, another controller may act), so the
first sign of an expiry stops kazoo's loop, and every later operation raises `SessionExpired`.

kazoo forgets watches when the connection breaks, although the session may live on.  Those watches
are called (with the kind of change that they could have seen) as soon as the connection is back:
the caller reads again in any case.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from kazoo import exceptions as kx
from kazoo import security
from kazoo.client import KazooClient
from kazoo.exceptions import SASLException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from highwater.world.api import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    RolledBack,
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
from highwater.world.tls_connection import tls_reason
from highwater.world.zookeeper_link import Access, ZooKeeperLink

log = logging.getLogger(__name__)

PLAIN = ZooKeeperLink()
_CLOSE_SECONDS = 2.0
CONNECT_S = 1.0

_ERRORS: dict[type[BaseException], type[ZkError]] = {
    kx.NoNodeError: NoNode,
    kx.NodeExistsError: NodeExists,
    kx.BadVersionError: BadVersion,
    kx.NotEmptyError: NotEmpty,
    kx.ConnectionLoss: ConnectionLoss,
    kx.ConnectionClosedError: ConnectionLoss,
    kx.OperationTimeoutError: ConnectionLoss,
    kx.SessionExpiredError: SessionExpired,
    kx.RolledBackError: RolledBack,
    kx.RuntimeInconsistency: RolledBack,
}

_KINDS = {
    EventType.CREATED: WatchKind.CREATED,
    EventType.DELETED: WatchKind.DELETED,
    EventType.CHANGED: WatchKind.CHANGED,
    EventType.CHILD: WatchKind.CHILD,
}

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


_ACLS: dict[Access, list[Any]] = {
    Access.OPEN: security.OPEN_ACL_UNSAFE,
    Access.SHOWN: [*security.CREATOR_ALL_ACL, *security.READ_ACL_UNSAFE],
    Access.OWN: security.CREATOR_ALL_ACL,
}
LOGIN_REMEDY = "correct user and password in the JAAS file, here or at ZooKeeper"


def _translate(error: BaseException, path: str) -> ZkError:
    if isinstance(error, kx.NoAuthError):
        told = f"does not let this broker use {path}: log in to it as the user who owns that znode"
        return NotAllowed(path, told)
    kind = _ERRORS.get(type(error))
    if kind is not None:
        return kind(path)
    return ZkError(path, f"{type(error).__name__} {error}".strip())


class _TrioQueue:
    """Stands in for the queue of kazoo's worker threads; runs its items in the trio thread."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._trio_thread = threading.get_ident()

    def put(self, func: Callable[[], object]) -> None:
        if threading.get_ident() == self._trio_thread:
            func()  # the second half of a completion that already runs here
            return
        try:
            self._token.run_sync_soon(func)
        except trio.RunFinishedError:
            pass


class _TrioHandler(SequentialThreadingHandler):
    """kazoo's handler without its worker threads (see the module's note)."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = _TrioQueue()
        self._tls = tls
        self.problem = ""
        """Why there is no TLS; told once, and not at each attempt."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket:
        """Called in kazoo's connection thread."""
        plain = socket.create_connection(address, timeout)
        if self._tls is None:
            return plain
        try:
            made = self._tls.wrap_socket(plain, server_hostname=hostname)
        except OSError as error:
            plain.close()
            why = tls_reason(error) if isinstance(error, ssl.SSLError) else str(error)
            problem = f"{hostname}:{address[1]}: {why}"
            if problem != self.problem:
                log.error("no TLS with ZooKeeper at %s", problem)
            self.problem = problem
            raise
        self.problem = ""
        return made

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        """Does nothing: otherwise kazoo would run the waiting callbacks in its own thread."""


class KazooZooKeeper:
    """One session of a real ZooKeeper (`world.api.ZooKeeper`); made by `open_zookeeper`."""

    def __init__(self, connect: str, session_timeout_ms: int, link: ZooKeeperLink) -> None:
        self.session_id = 0
        self.session_timeout_ms = session_timeout_ms
        self.on_session: list[Callable[[SessionState], None]] = []
        self.expired = False
        self._link = link
        self._handler = _TrioHandler(link.tls)
        self._client = KazooClient(
            hosts=connect,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            use_ssl=link.tls is not None,
            sasl_options=_digest(link) if link.user else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, max_jitter=0.2),
        )
        self._client.add_listener(self._session_changed)
        self._patience_s = CONNECT_S
        self._watch_connects()
        self._refused = False
        if link.user:
            self._watch_logins()
        self._connected = trio.Event()
        self._ended = False
        self._stranded: deque[tuple[Watcher, WatchEvent]] = deque()

    def _watch_connects(self) -> None:
        """kazoo waits for the answer to Connect as long as a session lasts.  A server that is just
        starting may lose the request with the connection, so the request is repeated after a
        second, and then after twice as long each time.  kazoo also keeps the answer to itself, so
        this reads it on its way.
        """
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_and_look(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return invoke(timeout, request, xid)
            patience_s, self._patience_s = self._patience_s, 2 * self._patience_s
            answer = invoke(min(timeout, patience_s), request, xid)
            self._patience_s = CONNECT_S
            if answer[0].time_out > 0:
                self._handler.completion_queue.put(
                    lambda: self._negotiated(answer[0].session_id, answer[0].time_out)
                )
            return answer

        connection._invoke = invoke_and_look

    def _watch_logins(self) -> None:
        """kazoo tells of a session before the login in it, and of a refusal as of an expiry."""
        connection = self._client._connection
        log_in = connection._authenticate_with_sasl

        def noting(host: str, timeout: float) -> None:
            try:
                log_in(host, timeout)
            except (kx.AuthFailedError, SASLException):
                self._refused = True
                raise

        connection._authenticate_with_sasl = noting

    def _negotiated(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.session_timeout_ms = timeout_ms

    # -- the session ------------------------------------------------------------------------------

    async def open(self, connection_timeout_ms: int) -> None:
        self._client.start_async()
        with trio.move_on_after(connection_timeout_ms / 1000):
            await self._connected.wait()
        if not self._connected.is_set():
            if problem := self._handler.problem:
                told = f"cannot be reached over TLS: {problem}; correct zookeeper.ssl.*"
                raise NotAllowed("", told)
            raise ConnectionLoss(detail="no ZooKeeper answered within the connection time-out")
        if self._link.user:
            await self._know_that_it_is_logged_in()
        if self._client.chroot:
            await self._make_chroot()

    async def _know_that_it_is_logged_in(self) -> None:
        try:
            await self.exists("/")
        except ZkError as error:
            if self._refused:
                told = f"refuses the login of {self._link.user!r}: {LOGIN_REMEDY}"
                raise NotAllowed("", told) from error
            raise

    async def _make_chroot(self) -> None:
        """Creates the root path at the end of zookeeper.connect, as Kafka does."""
        chroot, self._client.chroot = self._client.chroot, ""
        try:
            parts = chroot.strip("/").split("/")
            for depth in range(1, len(parts) + 1):
                try:
                    await self.create("/" + "/".join(parts[:depth]))
                except NodeExists:
                    pass
        finally:
            self._client.chroot = chroot

    def _session_changed(self, state: str) -> None:
        """Called in kazoo's connection thread."""
        if state == KazooState.LOST:
            self._client._stopped.set()  # or kazoo would open a second session
        self._handler.completion_queue.put(lambda: self._enter(_STATES[state]))

    def _enter(self, state: SessionState) -> None:
        if self._ended:
            return
        if state is SessionState.EXPIRED:
            self.expired = self._ended = True
            self._stranded.clear()
        elif state is SessionState.CONNECTED:
            self._connected.set()
        for callback in list(self.on_session):
            callback(state)
        if state is SessionState.CONNECTED:
            while self._stranded:
                watcher, event = self._stranded.popleft()
                watcher(event)

    async def close(self) -> None:
        """Ends the session: its ephemerals vanish at once."""
        self._ended = True
        with trio.CancelScope(shield=True), trio.move_on_after(_CLOSE_SECONDS):
            await trio.to_thread.run_sync(self._stop, abandon_on_cancel=True)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client._connection.connection_stopped.wait(_CLOSE_SECONDS)
            self._client.close()
        except Exception as error:  # a running connection attempt ends with the process
            log.debug("closing the ZooKeeper session: %s", error)

    # -- operations -------------------------------------------------------------------------------

    async def _result(self, asynchronous: Any, path: str) -> Any:
        """Waits for kazoo's answer.  Cancelling it leaves the outcome unknown, as ConnectionLoss
        does.
        """
        done = trio.Event()
        asynchronous.rawlink(lambda _: done.set())
        await done.wait()
        if asynchronous.exception is None:
            return asynchronous.value
        raise _translate(asynchronous.exception, path) from None

    def _check_alive(self, path: str) -> None:
        if self.expired:
            raise SessionExpired(path)
        if self._ended:
            raise ConnectionLoss(path, "this session was closed")

    def _watch(self, path: str, watcher: Watcher | None, kind: WatchKind) -> Any:
        if watcher is None:
            return None

        def called(event: WatchedEvent) -> None:
            if self._ended:
                return
            seen = _KINDS.get(event.type)
            if seen is not None:
                watcher(WatchEvent(seen, event.path))
            else:  # the connection broke, and kazoo forgot the watch
                self._stranded.append((watcher, WatchEvent(kind, path)))

        return called

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        self._check_alive(path)
        created, stat = await self._result(
            self._client.create_async(
                path,
                data or None,
                acl=_ACLS[self._link.access(path)],
                ephemeral=ephemeral,
                sequence=sequential,
                include_data=True,
            ),
            path,
        )
        return created, _stat(stat)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        self._check_alive(path)
        data, stat = await self._result(
            self._client.get_async(path, self._watch(path, watch, WatchKind.CHANGED)), path
        )
        return data or b"", _stat(stat)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        self._check_alive(path)
        stat = await self._result(
            self._client.exists_async(path, self._watch(path, watch, WatchKind.CHANGED)), path
        )
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self._check_alive(path)
        names = await self._result(
            self._client.get_children_async(path, self._watch(path, watch, WatchKind.CHILD)), path
        )
        return sorted(names)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        self._check_alive(path)
        return _stat(await self._result(self._client.set_async(path, data, version), path))

    async def delete(self, path: str, version: int = -1) -> None:
        self._check_alive(path)
        await self._result(self._client.delete_async(path, version), path)

    async def multi(self, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        first = ops[0].path if ops else ""
        self._check_alive(first)
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, data, ephemeral, sequential):
                    acl = _ACLS[self._link.access(path)]
                    transaction.create(path, data, acl, ephemeral, sequential)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        results = await self._result(transaction.commit_async(), first)
        _raise_first_cause(ops, results)
        return [_multi_result(op, result) for op, result in zip(ops, results, strict=True)]


def _raise_first_cause(ops: Sequence[ZkOp], results: Sequence[Any]) -> None:
    """Operations before the failed one have RolledBack, those after it RuntimeInconsistency."""
    failed = [(op, r) for op, r in zip(ops, results, strict=False) if isinstance(r, BaseException)]
    for op, error in failed:
        if not isinstance(error, kx.RolledBackError | kx.RuntimeInconsistency):
            raise _translate(error, op.path)
    if failed:
        raise _translate(failed[0][1], failed[0][0].path)


def _multi_result(op: ZkOp, result: Any) -> Stat | str | None:
    match op:
        case Create():
            return cast(str, result)
        case SetData():
            return _stat(result)
        case _:
            return None


def _digest(link: ZooKeeperLink) -> dict[str, str]:
    return {"mechanism": "DIGEST-MD5", "username": link.user, "password": link.password}


def _stat(stat: Any) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.numChildren)


@asynccontextmanager
async def open_zookeeper(
    connect: str,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    link: ZooKeeperLink = PLAIN,
) -> AsyncIterator[KazooZooKeeper]:
    """Opens one session, and closes it on exit.  Raises ConnectionLoss where no server answered in
    time, and NotAllowed where there is no TLS with it, or it refuses the login.
    """
    session = KazooZooKeeper(connect, session_timeout_ms, link)
    try:
        await session.open(connection_timeout_ms)
        yield session
    finally:
        await session.close()
