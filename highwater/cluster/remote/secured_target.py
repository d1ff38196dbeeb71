"""A way in without TLS and login to a cluster that asks for them: `--target-config FILE`.

Theory of operation.  The file says, by the names of Java's settings, how a client logs in.  On
127.0.0.1, each broker has a tunnel and a proxy in front of it.  The tunnel connects by TLS, logs in
as that client, and then passes bytes on; it gives up when its client has given up, because a broker
that lags behind has no time for handshakes that no client waits for.  The proxy, in front of the
tunnel, replaces each address in an answer by that of another such proxy, so that no client is sent
to a listener whose protocol it does not have.  To everything else in the harness these proxies are
the cluster: the workload's clients, faults and rules for messages need no secrets, and see frames.
A broker takes all of them for the file's user.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Final

import trio

from highwater.child_processes import StartError
from highwater.cluster.interface import broker
from highwater.cluster.links.link_rules import Links
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.links.rewriting import Address
from highwater.cluster.ports import free_ports
from highwater.kafka.config.checks import ConfigError
from highwater.kafka.config.sources import parse_properties
from highwater.kafka.security.links import SecuredNetwork
from highwater.kafka.security.mechanisms import BETWEEN_BROKERS
from highwater.kafka.security.settings import ListenerSettings
from highwater.world.real.disk import RealDisk
from highwater.world.real.network import RealNetwork

if TYPE_CHECKING:
    from highwater.world.api import Connection, Network

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CONNECT_S: Final = 10.0
_CHUNK: Final = 65536
_EARLY_BYTES: Final = 262144
"""How many bytes to read from a client before the connection to the broker is ready."""
_RESET: Final = struct.pack("ii", 1, 0)


def network_of(file: Path) -> Network:
    """A network whose connections log in as the file's client.

    Raises StartError, with one line, for a file that cannot be read, or a kind of login that the
    proxies do not have.
    """
    try:
        return network_by(parse_properties(file.read_text(encoding="utf-8"), str(file)))
    except (ConfigError, UnicodeDecodeError, StartError) as error:
        raise StartError(f"{file}: {error}") from None


def network_by(given: Mapping[str, str]) -> Network:
    """As `network_of`, for settings by Java's names instead of a file; raises ConfigError, too."""
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise StartError(f"security.protocol={protocol}; use {', '.join(PROTOCOLS)}")
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if protocol.startswith("SASL") and mechanism not in BETWEEN_BROKERS:
        raise StartError(
            f"the proxies in front of the target cannot log in by sasl.mechanism={mechanism};"
            f" use {', '.join(BETWEEN_BROKERS)}"
        )
    taken = {n: v for n, v in given.items() if n.startswith("ssl.") or n == "sasl.jaas.config"}
    names = ("sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms")
    settings = ListenerSettings({**taken, **dict.fromkeys(names, mechanism)}, "target", protocol)
    tls = login = None
    if protocol.endswith("SSL"):
        from highwater.kafka.security.tls import ClientTls  # late: this loads cryptography

        tls = ClientTls(settings, RealDisk())
    if protocol.startswith("SASL"):
        from highwater.kafka.security.sasl import SaslLogin

        login = SaslLogin(settings)
    return SecuredNetwork(RealNetwork(), tls, login)


@asynccontextmanager
async def ways_in(
    known: Mapping[int, Address], network: Network
) -> AsyncIterator[dict[int, Address]]:
    """Broker -> the address on this machine at which it serves without TLS and login."""
    ports = free_ports(2 * len(known))
    tunnels = dict(zip(sorted(known), ports[: len(known)], strict=True))
    ways = {n: ("127.0.0.1", p) for n, p in zip(tunnels, ports[len(known) :], strict=True)}
    by_address = {address: ways[number] for number, address in known.items()}

    def replace(number: int | None, own: Address) -> Address:
        """An unknown broker's address stays: the proxies of the run replace it."""
        return ways[number] if number in ways else by_address.get(own, own)

    async with trio.open_nursery() as nursery:
        for number, address in known.items():
            listeners = await trio.open_tcp_listeners(tunnels[number], host="127.0.0.1")
            carry = partial(_carry, network=network, address=address)
            await nursery.start(trio.serve_listeners, carry, listeners)
            proxy = Proxy(Links(), tunnels[number], owner=broker(number), replace=replace)
            await nursery.start(proxy.serve, ways[number][1])
        try:
            yield ways
        finally:
            nursery.cancel_scope.cancel()


async def _carry(near: trio.SocketStream, *, network: Network, address: Address) -> None:
    """One connection; it ends for both sides when one of them ends it."""
    far: Connection | None = None
    early = bytearray()
    try:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            far = await _far_side(near, early, network, address)
            if far is None:
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_end, nursery, partial(_outward, near, far, early))
                nursery.start_soon(_until_end, nursery, partial(_inward, near, far))
    finally:
        if far is not None:
            far.close()
        with suppress(OSError):
            near.socket.setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
        near.socket.close()


async def _far_side(
    near: trio.SocketStream, early: bytearray, network: Network, address: Address
) -> Connection | None:
    """A connection to the broker, logged in; None if that fails, takes too long, or the near side
    ends meanwhile.  Puts into `early` what the near side has sent by then."""
    far: Connection | None = None
    with trio.move_on_after(CONNECT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_end, nursery, partial(_read_early, near, early))
            with suppress(OSError, trio.BrokenResourceError):
                far = await network.connect(*address)
            nursery.cancel_scope.cancel()
    return far


async def _read_early(near: trio.SocketStream, early: bytearray) -> None:
    while data := await near.receive_some(_CHUNK):
        early += data
        if len(early) >= _EARLY_BYTES:
            await trio.sleep_forever()


async def _until_end(nursery: trio.Nursery, pipe: Callable[[], Awaitable[None]]) -> None:
    with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        await pipe()
    nursery.cancel_scope.cancel()


async def _outward(near: trio.SocketStream, far: Connection, early: bytearray) -> None:
    data: bytes | bytearray = early or await near.receive_some(_CHUNK)
    while data:
        left = memoryview(data)
        while left:
            taken = far.send([left])
            if taken is None:
                await far.wait_writable()
            else:
                left = left[taken:]
        data = await near.receive_some(_CHUNK)


async def _inward(near: trio.SocketStream, far: Connection) -> None:
    buffer = memoryview(bytearray(_CHUNK))
    while True:
        count = far.recv_into(buffer)
        if count is None:
            await far.wait_readable()
        elif count == 0:
            return
        else:
            await near.send_all(bytes(buffer[:count]))
