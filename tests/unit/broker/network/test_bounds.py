"""The bounds of the request path: queues, memory, handlers, connections; and the work that goes on
beside them."""

from __future__ import annotations

import trio

from highwater.broker.context import Context, Delayed, Plane, Reply
from highwater.broker.request.response import Response

from .conftest import Net, Wait, echo, entry, serving


async def test_a_full_channel_stops_reading_and_loses_nothing(network: Net) -> None:
    gate = trio.Event()

    async def handle(ctx: Context, body: memoryview) -> Reply:
        await gate.wait()
        return echo(ctx, body)

    config = {"queued_max_requests": 3, "num_io_threads": 2, "num_network_threads": 2}
    async with serving(network, entry(handle), **config) as s:
        clients = [await s.connect() for _ in range(20)]
        for client in clients:
            await client.send(b"x" * 1000)
        channel = s.server.planes[Plane.DATA].channel
        while channel.stalled < 15:
            await trio.sleep(0.001)
        assert len(channel) == 3
        assert sum(c.in_flight is not None for c in s.server.connections()) == 5
        gate.set()
        for client in clients:
            assert (await client.receive())[1] == b"<" + b"x" * 1000 + b">"
        assert channel.stalled == 0
        assert channel.bytes_in_flight == 0


async def test_queued_max_request_bytes_bounds_the_memory_of_requests(network: Net) -> None:
    gate = trio.Event()

    async def handle(ctx: Context, body: memoryview) -> Reply:
        await gate.wait()
        return Response(parts=[b"ok"])

    async with serving(network, entry(handle), queued_max_request_bytes=250_000) as s:
        clients = [await s.connect() for _ in range(10)]
        for client in clients:
            await client.send(b"x" * 50_000)
        channel = s.server.planes[Plane.DATA].channel
        while channel.stalled < 5:
            await trio.sleep(0.001)
        assert 250_000 <= channel.bytes_in_flight < 301_000
        gate.set()
        for client in clients:
            assert (await client.receive())[1] == b"ok"


async def test_the_control_plane_does_not_wait_for_a_full_data_plane(network: Net) -> None:
    gate = trio.Event()

    async def data(ctx: Context, body: memoryview) -> Reply:
        if ctx.listener == "PLAINTEXT":
            await gate.wait()
        return Response(parts=[ctx.listener.encode()])

    async with serving(
        network,
        entry(data),
        listeners="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        control_plane_listener_name="CONTROLLER",
        queued_max_requests=2,
        num_io_threads=1,
    ) as s:
        clients = [await s.connect() for _ in range(5)]
        for client in clients:
            await client.send(b"")
        controller = await s.connect("CONTROLLER")
        assert await controller.call(b"") == b"CONTROLLER"
        gate.set()
        for client in clients:
            assert (await client.receive())[1] == b"PLAINTEXT"


async def test_waiting_handlers_leave_the_others_free_up_to_their_number(network: Net) -> None:
    gate = trio.Event()

    async def handle(ctx: Context, body: memoryview) -> Reply:
        if bytes(body) == b"wait":
            await gate.wait()
        return echo(ctx, body)

    async with serving(network, entry(handle), num_io_threads=3) as s:
        waiting = [await s.connect() for _ in range(3)]
        quick = await s.connect()
        for client in waiting[:2]:
            await client.send(b"wait")
        assert await quick.call(b"1") == b"<1>"
        await waiting[2].send(b"wait")
        await quick.send(b"2")
        with trio.move_on_after(0.05) as scope:
            await quick.receive()
        assert scope.cancelled_caught
        s.server.planes[Plane.DATA].pool.resize(4)
        assert await quick.receive() == (7, b"<2>")
        gate.set()
        for client in waiting:
            assert (await client.receive())[1] == b"<wait>"


async def test_idle_connections_are_closed_but_not_waiting_ones(network: Net) -> None:
    op = Wait()
    async with serving(
        network, entry(lambda ctx, body: Delayed(op)), connections_max_idle_ms=50
    ) as s:
        idle, waiting = await s.connect(), await s.connect()
        await waiting.send(b"")
        assert await idle.closed()
        await trio.sleep(0.1)
        assert len(s.server.connections()) == 1
        op.ready = True
        s.services.completions.add("Fetch", ["k"])
        assert await waiting.receive() == (7, b"done")
        assert await waiting.closed()
        assert s.server.expired[Plane.DATA] == 2


async def test_connections_per_ip(network: Net) -> None:
    async with serving(
        network,
        entry(echo),
        max_connections_per_ip=100,
        max_connections_per_ip_overrides="127.0.0.1:2",
    ) as s:
        first, second = await s.connect(), await s.connect()
        assert await first.call(b"1") == b"<1>"
        assert await second.call(b"2") == b"<2>"
        third = await s.connect()
        assert await third.closed()
        await first.stream.aclose()
        while len(s.server.connections()) > 1:
            await trio.sleep(0.001)
        fourth = await s.connect()
        assert await fourth.call(b"4") == b"<4>"


async def test_max_connections_makes_clients_wait_and_brokers_not(network: Net) -> None:
    async with serving(
        network,
        entry(echo),
        listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
        max_connections=2,
    ) as s:
        first, second = await s.connect("CLIENTS"), await s.connect("CLIENTS")
        assert await first.call(b"1") == b"<1>"
        assert await second.call(b"2") == b"<2>"
        third = await s.connect("CLIENTS")
        await third.send(b"3")
        with trio.move_on_after(0.05) as scope:
            await third.receive()
        assert scope.cancelled_caught
        broker = await s.connect("BROKERS")
        assert await broker.call(b"b") == b"<b>"
        assert await first.closed()  # it was idle for longest
        await second.stream.aclose()
        assert await third.receive() == (7, b"<3>")


async def test_max_connections_counts_where_there_is_one_listener_alone(network: Net) -> None:
    """It is the brokers' own as well, and no other connection can make room."""
    async with serving(network, entry(echo), max_connections=1) as s:
        first, second = await s.connect(), await s.connect()
        assert await first.call(b"1") == b"<1>"
        await second.send(b"2")
        with trio.move_on_after(0.05) as scope:
            await second.receive()
        assert scope.cancelled_caught
        await first.stream.aclose()
        assert await second.receive() == (7, b"<2>")


async def test_a_listeners_own_limit_makes_its_clients_wait_alone(network: Net) -> None:
    name = "listener.name.clients.max.connections"
    async with serving(
        network,
        entry(echo),
        listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
        originals={name: "1"},
    ) as s:
        first, second = await s.connect("CLIENTS"), await s.connect("CLIENTS")
        assert await first.call(b"1") == b"<1>"
        await second.send(b"2")
        broker = await s.connect("BROKERS")
        assert await broker.call(b"b") == b"<b>"
        with trio.move_on_after(0.05) as scope:
            await second.receive()
        assert scope.cancelled_caught
        s.server.limit_listeners({name: "2"})
        assert await second.receive() == (7, b"<2>")
        assert await first.call(b"3") == b"<3>"
