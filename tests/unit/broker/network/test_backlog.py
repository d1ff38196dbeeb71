"""The number of connections that the system keeps for a broker that does not accept them yet."""

from __future__ import annotations

import gc
import socket
import struct
import sys

import pytest

from highwater.world.real.network import RealNetwork
from tests.unit.broker.network.conftest import serving

BACKLOG = 8 + 5 * 4
"""The place of tcpi_sacked in struct tcp_info (linux/tcp.h), of a socket that listens."""


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO of a listening socket is Linux's")
async def test_as_many_connections_wait_to_be_accepted() -> None:
    async with serving(RealNetwork(), socket_listen_backlog_size=7) as s:
        listening = [
            sock
            for sock in gc.get_objects()
            if isinstance(sock, socket.socket)
            and sock.fileno() >= 0
            and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ]
        ports = {sock.getsockname()[1]: sock for sock in listening}
        listener = ports[s.addresses["PLAINTEXT"][1]]
        told = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        assert struct.unpack_from("I", told, BACKLOG) == (7,)
