"""Limits of connections: in all, from an address, and in a second."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import trio

from highwater.broker.context import Context
from highwater.broker.quota.connection_limits import (
    ConnectionLimits,
    ListenerLimits,
    TooManyConnections,
)
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


def test_a_listener_keeps_its_own_limits_and_the_brokers() -> None:
    limits = ConnectionLimits(max_connections=3, creation_rate=10, protected={"INSIDE"})
    limits.limit_listeners({"OUTSIDE": ListenerLimits(2, 5), "INSIDE": ListenerLimits(4)})
    for _ in range(2):
        assert limits.problem("OUTSIDE") is None
        limits.add("10.0.0.1", "OUTSIDE")
    assert limits.problem("OUTSIDE") == "listener.name.outside.max.connections=2"
    assert limits.problem("OTHER") is None
    limits.add("10.0.0.1", "OTHER")
    assert limits.problem("OTHER") == "max.connections=3"
    for _ in range(4):  # protected: the broker's limit does not count, its own does
        assert limits.problem("INSIDE") is None
        limits.add("10.0.0.1", "INSIDE")
    assert limits.problem("INSIDE") == "listener.name.inside.max.connections=4"
    limits.remove("10.0.0.1", "OUTSIDE")
    limits.limit_listeners({})
    limits.configure(100, 100, "", 10)
    assert limits.problem("OUTSIDE") is None


def test_a_listeners_own_rate() -> None:
    limits = ConnectionLimits(creation_rate=10, protected={"INSIDE"})
    limits.limit_listeners({"OUTSIDE": ListenerLimits(creation_rate=5)})
    assert [limits.delay_ms(1000, "OUTSIDE") for _ in range(6)] == [0] * 5 + [201]
    assert [limits.delay_ms(1000, "OTHER") for _ in range(6)] == [0] * 5 + [101]
    assert [limits.delay_ms(1000, "INSIDE") for _ in range(50)] == [0] * 50
    limits.limit_listeners({"OUTSIDE": ListenerLimits(creation_rate=0)})
    assert limits.delay_ms(9000, "OUTSIDE") == 1000, "nobody, until it is raised"


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
