"""A simulated network: machines, links between them, and connections that behave as TCP does.

A link is one direction between two machines.  It has a delay, perhaps a rate, and may be cut.
Bytes sent into a cut are not lost but wait, as TCP sends them again, and arrive after the link has
healed, unless the connection has been given up meanwhile (`pipe.RETRANSMIT_SECONDS`).  An attempt
to connect waits as well.  So a partition alone makes silence, never an error.

Losses are ends of connections.  `break_connections` resets both ends.  A machine resets the
connections of a killed process.  After a power loss no one says anything, and the other end is
half-open until it sends something to the machine that came back.

Bytes sent with `more` wait for the next ones, as on Linux, and arrive with them.  Bytes sent in one
piece may arrive in two, and windows differ in size, so that senders meet full ones.  A short send
or receive means, as on Linux, that the window is full or that nothing is left.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from highwater.world.sim.kernel import Kernel
from highwater.world.sim.parking import Waiters
from highwater.world.sim.pipe import Link, Pipe
from highwater.world.sim.poller import SimPoller
from highwater.world.sim.process import Host, Process

if TYPE_CHECKING:
    from highwater.world.api import Buffer, File

WINDOW_BYTES = (4096, 65536, 262144)
CONNECT_SECONDS = 60.0
_READ, _WRITE, _HUNG_UP = 1, 4, 0x2000


def _error(number: int, detail: str = "") -> OSError:
    return OSError(number, f"{os.strerror(number)}{': ' if detail else ''}{detail}")


class SimConnection:
    """One end of a connection (`world.api.Connection`)."""

    def __init__(
        self,
        fabric: Fabric,
        host: Host,
        process: Process | None,
        label: str,
        local: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        self.fabric = fabric
        self.host = host
        self.process = process
        self.label = label
        self.local = local
        self.peer = peer
        self.small_bytes = fabric.small_bytes
        self.out: Pipe[SimConnection]
        self._inbox: deque[memoryview] = deque()
        self._unread = 0
        self._ended = False
        self._error: int | None = None
        self._closed = False
        self._full = False
        self._window = fabric.random.choice(WINDOW_BYTES)
        self._poller: tuple[SimPoller, Any] | None = None
        self._readable = Waiters()
        self._writable = Waiters()

    # -- what the program calls -----------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int | None:
        self._check()
        if self._error is not None and not self._inbox:
            raise _error(self._error)
        if not self._inbox:
            return 0 if self._ended else None
        room = len(buffer)
        taken = 0
        while self._inbox and taken < room:
            chunk = self._inbox[0]
            n = min(len(chunk), room - taken)
            buffer[taken : taken + n] = chunk[:n]
            taken += n
            if n == len(chunk):
                self._inbox.popleft()
            else:
                self._inbox[0] = chunk[n:]
        self._unread -= taken
        self.out.sink.window_opened()
        return taken

    def send(self, views: Sequence[Buffer], more: bool = False) -> int | None:
        self._check()
        if self._error is not None:
            raise _error(errno.EPIPE if self._error == errno.ECONNRESET else self._error)
        data = bytes(views[0]) if len(views) == 1 else b"".join(views)
        room = self._room()
        if len(data) >= room:
            self._full = True
            if room <= 0:
                self.out.uncork()
                return None
        if len(data) > room:
            data = data[:room]
        if more:
            self.out.cork(data)
        else:
            self.out.send("data", data)
        return len(data)

    def send_file(self, file: File, position: int, n: int) -> int | None:
        self._check()
        data = file.read_to_send(position, min(n, 1 << 16))
        return self.send([data]) if data else 0

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._closed and not self._inbox and not self._ended and self._error is None:
            await self._readable.sleep()
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._check_waited()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._closed and self._error is None and self._room() <= 0:
            self._full = True
            await self._writable.sleep()
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        self._check_waited()

    def close(self) -> None:
        if self._closed:
            return
        if self.process is not None and not self.process.alive:
            return
        self._shut()

    # -- what happens to it ---------------------------------------------------------------------

    def _check(self) -> None:
        if self.process is not None:
            self.process.check()
        if self._closed:
            raise _error(errno.EBADF, "the connection is closed")

    def _check_waited(self) -> None:
        if self.process is not None:
            self.process.check()
        if self._closed:
            raise trio.ClosedResourceError("the connection was closed")

    def _room(self) -> int:
        """Bytes that the receiver's window still takes."""
        return self.out.sink._window - self.out.on_way - self.out.sink._unread

    def _news(self, bits: int) -> None:
        if bits & _READ:
            self._readable.wake_all()
        if bits & _WRITE:
            self._writable.wake_all()
        if self._poller is not None:
            poller, token = self._poller
            if self._ended or self._error is not None:
                bits |= _HUNG_UP
            poller.news(token, bits)

    def watched_by(self, poller: SimPoller | None, token: Any) -> None:
        self._poller = None if poller is None else (poller, token)
        if self._inbox or self._ended or self._error is not None:
            self._news(_READ)

    def window_opened(self) -> None:
        """The peer has read; only a sender that found the window full needs to know."""
        if self._full and self._room() > 0:
            self._full = False
            self._news(_WRITE)

    def arrived(self, kind: str, data: bytes) -> None:
        if kind == "reset":
            self._inbox.clear()
            self._unread = 0
            self.broken(errno.ECONNRESET)
        elif self._closed:
            if kind == "data":  # no one reads it any more, so the machine resets it
                self.out.send("reset")
        elif kind == "end":
            self._ended = True
            self._news(_READ)
        elif self._error is None:
            self._inbox.append(memoryview(data))
            self._unread += len(data)
            self._news(_READ)

    def broken(self, number: int) -> None:
        if self._error is None:
            self._error = number
            self.out.drop_corked()
            self._news(_READ | _WRITE)
        self.fabric.forget(self)

    def _shut(self, goodbye: bool = True) -> None:
        self._closed = True
        if goodbye and self._error is None:
            self.out.send("reset" if self._inbox else "end")
        self.out.drop_corked()
        self._inbox.clear()
        self._unread = 0
        self._news(_READ | _WRITE)
        self.fabric.forget(self)

    def died(self, goodbye: bool) -> None:
        """Ends the connection of a killed process."""
        if not self._closed:
            self._shut(goodbye)


class SimListener:
    """`world.api.Listener`."""

    def __init__(self, fabric: Fabric, process: Process, address: tuple[str, int], backlog: int):
        self.fabric = fabric
        self.process = process
        self.address = address
        self.backlog = backlog
        self.open = True
        self._waiting: deque[SimConnection] = deque()
        self._acceptors = trio.lowlevel.ParkingLot()

    async def accept(self) -> SimConnection:
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            self.process.check()
            if not self.open:
                raise trio.ClosedResourceError("the listener was closed")
            if self._waiting:
                connection = self._waiting.popleft()
                await trio.lowlevel.cancel_shielded_checkpoint()
                return connection
            await self._acceptors.park()

    def offer(self, connection: SimConnection) -> bool:
        if len(self._waiting) >= self.backlog:
            return False
        self._waiting.append(connection)
        self._acceptors.unpark()
        return True

    def close(self) -> None:
        if self.process.alive:
            self.shut(True)

    def shut(self, goodbye: bool) -> None:
        if not self.open:
            return
        self.open = False
        self.fabric.listeners.pop((self.process.host.name, self.address[1]), None)
        for connection in self._waiting:
            connection.died(goodbye)
        self._waiting.clear()
        self._acceptors.unpark_all()


class Fabric:
    """The network of all machines."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.random = kernel.random("network")
        self.hosts: dict[str, Host] = {}
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.connections: dict[str, SimConnection] = {}
        self.small_bytes = 0
        self.waiting: list[Pipe[Any]] = []
        self._links: dict[tuple[str, str], Link] = {}
        self._healed = trio.lowlevel.ParkingLot()
        self._made = 0

    def link(self, source: Host, target: Host) -> Link:
        key = (source.name, target.name)
        found = self._links.get(key)
        if found is None:
            found = Link()
            if source is target:
                found.delay_s = (0.00002, 0.0001)
            self._links[key] = found
        return found

    # -- faults ---------------------------------------------------------------------------------

    def cut(self, source: Host, target: Host) -> None:
        self.link(source, target).cut = True

    def heal(self, source: Host, target: Host) -> None:
        self.link(source, target).cut = False
        self.changed()

    def heal_all(self) -> None:
        for link in self._links.values():
            link.cut = False
            link.bytes_per_s = None
            link.delay_s = Link().delay_s
        self.changed()

    def changed(self) -> None:
        """Retries all that waits, after a link healed or a machine came back."""
        waiting, self.waiting = self.waiting, []
        for pipe in waiting:
            pipe.retry()
        self._healed.unpark_all()

    def break_connections(self, one: Host, other: Host) -> int:
        """Resets every connection between two machines at both ends; gives their number."""
        broken = [
            c for c in self.connections.values()
            if c.host is one and c.out.sink.host is other
        ]  # fmt: skip
        for connection in broken:
            connection.out.sink.arrived("reset", b"")
            connection.arrived("reset", b"")
        return len(broken)

    # -- connections ----------------------------------------------------------------------------

    def forget(self, connection: SimConnection) -> None:
        self.connections.pop(connection.label, None)
        if connection.process is not None:
            connection.process.on_death.pop(connection, None)

    def host_of(self, name: str, asking: Host) -> Host | None:
        if name in ("", "0.0.0.0", "127.0.0.1", "localhost", "::"):
            return asking
        return self.hosts.get(name)

    def passable(self, one: Host, other: Host) -> bool:
        """Whether packets pass both ways."""
        return other.up and not (self.link(one, other).cut or self.link(other, one).cut)

    async def _until_passable(self, one: Host, other: Host, name: str) -> None:
        deadline = self.kernel.timeline.now + CONNECT_SECONDS
        while not self.passable(one, other):
            with trio.move_on_at(deadline):
                await self._healed.park()
            if self.kernel.timeline.now >= deadline:
                raise _error(errno.ETIMEDOUT, name)

    async def connect(self, process: Process, host: str, port: int) -> SimConnection:
        process.check()
        source, target = process.host, self.host_of(host, process.host)
        name = f"{host}:{port}"
        if target is None:
            await trio.lowlevel.checkpoint()
            raise _error(errno.EHOSTUNREACH, name)
        for _ in range(7):
            await self._until_passable(source, target, name)
            out, back = self.link(source, target), self.link(target, source)
            await self.kernel.timeline.sleep(self.random.uniform(*out.delay_s))
            listener = self.listeners.get((target.name, port))
            made = self._join(process, listener, target, port) if listener else None
            await self.kernel.timeline.sleep(self.random.uniform(*back.delay_s))
            process.check()
            if listener is None:
                raise _error(errno.ECONNREFUSED, name)
            if made is not None:
                return made
            await trio.sleep(1.0)  # the backlog is full, and TCP tries again
        raise _error(errno.ETIMEDOUT, name)

    def _join(
        self, process: Process, listener: SimListener, target: Host, port: int
    ) -> SimConnection | None:
        source = process.host
        source.next_port += 1
        self._made += 1
        label = f"{self._made}:{source.name}>{target.name}:{port}"
        here, there = (source.name, source.next_port), (target.name, port)
        near = SimConnection(self, source, process, label + "<", here, there)
        far = SimConnection(self, target, listener.process, label + ">", there, here)
        near.out, far.out = Pipe(self, near, far), Pipe(self, far, near)
        if not listener.offer(far):
            return None
        for connection in (near, far):
            self.connections[connection.label] = connection
            assert connection.process is not None
            connection.process.on_death[connection] = connection.died
        return near


class SimNetwork:
    """`world.api.Network` of one process."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric = fabric
        self._process = process

    def poller(self) -> SimPoller:
        return SimPoller()

    async def listen(self, host: str, port: int, backlog: int = 50) -> SimListener:
        self._process.check()
        await trio.lowlevel.checkpoint()
        machine = self._process.host
        if self._fabric.host_of(host, machine) is not machine:
            raise _error(errno.EADDRNOTAVAIL, f"{host}:{port}")
        if port == 0:
            machine.next_port += 1
            port = machine.next_port
        key = (machine.name, port)
        if key in self._fabric.listeners:
            raise _error(errno.EADDRINUSE, f"{host}:{port}")
        listener = SimListener(self._fabric, self._process, (host or machine.name, port), backlog)
        self._fabric.listeners[key] = listener
        self._process.on_death[listener] = listener.shut
        return listener

    async def connect(self, host: str, port: int) -> SimConnection:
        return await self._fabric.connect(self._process, host, port)
