"""Limits of connections: in all, from an address, and in a second."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import trio

from highwater.broker.context import Context
from highwater.broker.quota.connection_limits import ConnectionLimits, TooManyConnections
from highwater.broker.request.response import Response
from highwater.world.real.network import RealNetwork
from tests.unit.broker.network.conftest import entry, serving


def echo(ctx: Context, body: memoryview) -> Response:
    return Response(parts=[b"<", bytes(body), b">"])


def test_no_more_in_a_second_than_the_creation_rate_after_its_burst() -> None:
    limits = ConnectionLimits(creation_rate=10)
    now = created = 0
    while now < 5000:
        delay = limits.delay_ms(now)
        created += not delay
        now += delay
    assert 10 + 10 * 5 - 2 <= created <= 10 + 10 * 5 + 1, "a second's worth at once, then the rate"
    limits.configure(100, 100, "", 1000)
    assert limits.delay_ms(now + 1000) == 0, "raised while it runs"


def test_an_addresses_own_number_goes_before_that_of_all() -> None:
    limits = ConnectionLimits(per_ip=2, overrides="10.0.0.1:1,10.0.0.2:3")
    for ip, allowed in (("10.0.0.1", 1), ("10.0.0.2", 3), ("10.0.0.3", 2)):
        for _ in range(allowed):
            limits.add(ip)
        with pytest.raises(TooManyConnections, match=f"{ip} has {allowed} connections"):
            limits.add(ip)
    assert limits.total == 6
    limits.remove("10.0.0.1")
    limits.add("10.0.0.1")


@pytest.mark.thorough
async def test_acceptors_wait_for_the_creation_rate() -> None:
    async with serving(RealNetwork(), entry(echo), max_connection_creation_rate=20) as s:
        began = trio.current_time()
        for _ in range(30):  # twenty at once, and half a second for the rest
            client = await s.connect()
            assert await client.call(b"1") == b"<1>"
        assert trio.current_time() - began > 0.4


async def test_who_vanished_without_a_word_is_looked_for() -> None:
    """Half-open connections: TCP probes a silent peer, and idle ones are closed in any case."""
    listener = await RealNetwork().listen("127.0.0.1", 0)
    stream = await trio.open_tcp_stream(*listener.address)
    connection: Any = await listener.accept()
    with socket.socket(fileno=os.dup(connection._fd)) as accepted:
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    connection.close()
    listener.close()
    await stream.aclose()
