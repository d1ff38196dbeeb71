"""The real network: raw non-blocking sockets, waited for through trio only after they would block.

A trio stream makes a checkpoint of every call and costs half the rate, so the system call comes
first.  A caller that loops over successful calls must make checkpoints of its own.

`send` gathers views in one sendmsg.  `more` becomes MSG_MORE: the kernel holds a short segment back
until the next call, so that an answer's header and the records that `send_file` sends after it
leave in one packet although TCP_NODELAY is set.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import trio
from trio.lowlevel import notify_closing, wait_readable, wait_writable

if TYPE_CHECKING:
    from highwater.world.api import Buffer, Connection, File

_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
_NOSIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
_IOV_MAX = 512
_SMALL_BYTES = 8192
_LINUX = sys.platform == "linux"
_EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET if _LINUX else 0
_EVENTS = 64
_CONNECTING = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY)
_TRY_LATER = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PEER_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EINTR)


class RealConnection:
    """One TCP connection."""

    __slots__ = ("_closed", "_fd", "_socket", "local", "peer", "small_bytes")

    def __init__(self, sock: socket.socket) -> None:
        _prepare(sock)
        self._socket = sock
        self._fd = sock.fileno()
        self._closed = False
        self.small_bytes = _SMALL_BYTES
        self.peer = _address(sock.getpeername())
        self.local = _address(sock.getsockname())

    def recv_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return None

    def send(self, views: Sequence[Buffer], more: bool = False) -> int | None:
        flags = _NOSIGNAL | _MSG_MORE if more else _NOSIGNAL
        try:
            if len(views) == 1:
                return self._socket.send(views[0], flags)
            if len(views) > _IOV_MAX:
                views = views[:_IOV_MAX]
            return self._socket.sendmsg(views, (), flags)
        except BlockingIOError:
            return None

    def send_file(self, file: File, position: int, n: int) -> int | None:
        fileno = getattr(file, "fileno", None)
        if not _LINUX or fileno is None:
            data = file.read_to_send(position, min(n, 1 << 18))
            return self.send([data]) if data else 0
        if self._closed:
            raise OSError(errno.EBADF, "the connection is closed")
        try:
            return os.sendfile(self._fd, fileno(), position, n)
        except BlockingIOError:
            return None

    def exchange(self) -> tuple[int, int]:
        """Puts one end of a new pair of sockets in the place of its own, under the same number;
        gives the old one, with all that it has yet to be read, and the pair's other end.  No task
        and no poller may wait for it at that moment."""
        ours, theirs = _pair()
        with ours, theirs:
            _prepare(ours)
            old = os.dup(self._fd_or_closed())
            os.dup2(ours.fileno(), self._fd, inheritable=False)
            return old, theirs.detach()

    async def wait_readable(self) -> None:
        await wait_readable(self._fd_or_closed())

    async def wait_writable(self) -> None:
        await wait_writable(self._fd_or_closed())

    def _fd_or_closed(self) -> int:
        if self._closed:
            raise trio.ClosedResourceError("the connection was closed")
        return self._fd

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            notify_closing(self._fd)
            self._socket.close()


class RealListener:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._closed = False
        self.address = _address(sock.getsockname())

    async def accept(self) -> RealConnection:
        """The next connection; connections that have already ended are skipped."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._closed:
                raise trio.ClosedResourceError("the listener was closed")
            try:
                sock, _ = self._socket.accept()
                return RealConnection(sock)
            except BlockingIOError:
                await wait_readable(self._socket)
            except OSError as exc:
                if exc.errno in _TRY_LATER:
                    await trio.sleep(0.1)  # descriptors may become free again
                elif exc.errno not in (*_PEER_GONE, errno.ENOTCONN, errno.EINVAL):
                    raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            notify_closing(self._socket)
            self._socket.close()


class EpollPoller:
    """Lets one task wait for many connections: an epoll of its own, which trio's epoll watches.

    Edge-triggered and registered once, so that a request costs no epoll_ctl at all.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._fd = self._epoll.fileno()
        self._tokens: dict[int, Any] = {}
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    def add(self, connection: Connection, token: Any) -> None:
        fd = cast("RealConnection", connection)._fd
        self._tokens[fd] = token
        self._epoll.register(fd, _EDGES)

    def remove(self, connection: Connection, token: Any) -> None:
        fd = cast("RealConnection", connection)._fd
        if self._tokens.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass

    def want_read(self, connection: Connection, token: Any) -> None:
        """Does nothing: the epoll is edge-triggered."""

    def want_write(self, connection: Connection, token: Any) -> None:
        """Does nothing: the epoll is edge-triggered."""

    async def wait(self) -> list[tuple[Any, int]]:
        await wait_readable(self._fd)
        events = self._epoll.poll(0, _EVENTS)
        tokens = self._tokens
        if len(events) == 1 and events[0][0] in tokens:
            return [(tokens[events[0][0]], events[0][1])]
        found = []
        for fd, bits in events:
            if fd in tokens:
                found.append((tokens[fd], bits))
            elif fd == self._wake_fd:
                os.eventfd_read(fd)
        return found

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        self._tokens.clear()
        notify_closing(self._fd)
        self._epoll.close()
        os.close(self._wake_fd)


class RealNetwork:
    """TCP over IPv4 and IPv6."""

    def poller(self) -> EpollPoller | None:
        """None where the system has no epoll; callers then wait in tasks."""
        return EpollPoller() if _LINUX else None

    async def listen(self, host: str, port: int, backlog: int = 50) -> RealListener:
        """An empty host means all interfaces, as in Kafka's listeners."""
        family, address = (await _resolve(host or "0.0.0.0", port))[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(backlog)
        except BaseException:
            sock.close()
            raise
        return RealListener(sock)

    async def connect(self, host: str, port: int) -> RealConnection:
        """Tries each address of the name in turn."""
        error: OSError | None = None
        for family, address in await _resolve(host, port):
            try:
                return await _connect(family, address)
            except OSError as exc:
                error = exc
        raise error or OSError(errno.EHOSTUNREACH, f"{host} has no address")


async def _resolve(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """Family and address; a numeric one is not looked up, which saves a thread and a time-out."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ordered = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return [(entry[0], cast("tuple[str, int]", entry[4])) for entry in ordered]


async def _connect(family: int, address: tuple[str, int]) -> RealConnection:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in _CONNECTING:
            raise OSError(code, f"{os.strerror(code)}: {address[0]}:{address[1]}")
        await wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, f"{os.strerror(code)}: {address[0]}:{address[1]}")
        return RealConnection(sock)
    except BaseException:
        notify_closing(sock)
        sock.close()
        raise


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets of TCP, so that each end sees of the other what it sees of a client."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        while True:
            ours, address = listening.accept()
            if address == theirs.getsockname():
                return ours, theirs
            ours.close()  # a stranger's


def _address(address: object) -> tuple[str, int]:
    if isinstance(address, tuple) and len(address) >= 2:
        return str(address[0]), int(address[1])
    return "", 0
