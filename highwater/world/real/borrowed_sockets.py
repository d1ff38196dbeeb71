"""Listening sockets that a harness lends to a broker, and the door by which they come and go.

A harness that stands between a cluster's members listens at the ports that they advertise.  As long
as it has nothing to do there, it lends a broker the sockets, and no byte makes a detour.  The door
is a Unix socket in the broker's folder (`HIGHWATER_LINK_DOOR` names it), to which the broker
connects at its start.  The first packet has the listeners' names and their sockets.  The harness
recalls them by closing its direction.  Then the broker sends a packet for each connection, with the
connection's socket, one end of the pair that has taken its place, and a file in memory that says
what is in flight.  The loan ends when the broker's end of the door closes, so a broker that dies
gives its listeners back.

A broker without the variable runs none of this code.  Only Linux has the system calls for it.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import trio

from highwater.world.real.network import RealConnection, RealListener, RealNetwork

if TYPE_CHECKING:
    from highwater.world.api import Buffer, Connection, Listener

VARIABLE = "HIGHWATER_LINK_DOOR"
PATIENCE_S = 5.0
"""How long a broker waits for the sockets that it may borrow."""
_PACKET_BYTES = 4096
_DESCRIPTORS = 64


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """A name for this path that is short enough for a Unix socket's address."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


async def send(door: trio.socket.SocketType, packet: bytes, descriptors: Sequence[int]) -> None:
    """Sends a packet with descriptors, which stay open here."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    await door.sendmsg([packet], [rights])


async def receive(door: trio.socket.SocketType) -> tuple[bytes, list[int]]:
    """The next packet and its descriptors; empty at the end."""
    room = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
    packet, rights, _, _ = await door.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for _, _, data in rights:
        found.frombytes(data)
    return packet, list(found)


async def borrow(path: str) -> BorrowedSockets | None:
    """Borrows the sockets that are lent at this door; None if there are none."""
    door = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with trio.fail_after(PATIENCE_S), short_path(path) as name:
            await door.connect(name)
            packet, descriptors = await receive(door)
    except (OSError, trio.TooSlowError):
        packet = b""
    except BaseException:
        door.close()
        raise
    if not packet:
        door.close()
        return None
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for borrowed in sockets:
        borrowed.setblocking(False)
    lent = zip(json.loads(packet), map(RealListener, sockets), strict=True)
    return BorrowedSockets(door, list(lent))


class BorrowedSockets:
    """A `world.api.Loan`."""

    def __init__(
        self, door: trio.socket.SocketType, listeners: Sequence[tuple[str, RealListener]]
    ) -> None:
        self._door = door
        self.listeners: Sequence[tuple[str, Listener]] = listeners

    async def recalled(self) -> None:
        await receive(self._door)

    def exchange(self, connection: Connection) -> tuple[int, int]:
        return cast("RealConnection", connection).exchange()

    async def hand_over(self, descriptors: tuple[int, int], about: Any, unread: Buffer) -> None:
        try:
            with os.fdopen(os.memfd_create("handed over"), "w+b") as told:
                told.write(json.dumps(about).encode() + b"\n")
                told.write(unread)
                told.flush()
                await send(self._door, b"connection", [*descriptors, told.fileno()])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def close(self) -> None:
        for _, listener in self.listeners:
            listener.close()
        self._door.close()


class DoorNetwork(RealNetwork):
    def __init__(self, path: str) -> None:
        self._path = path

    async def borrow(self) -> BorrowedSockets | None:
        return await borrow(self._path)
