"""The whole request path, from socket to socket."""

from __future__ import annotations

import logging
import socket
from struct import pack
from typing import Any

import pytest
import trio

from highwater.broker.context import Context, Delayed, Reply
from highwater.broker.network.socket_server import BindError, SocketServer
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.codec import BadMessage, decode_response, encode_request
from highwater.kafka.wire.messages import ApiVersionsRequest, HeartbeatRequest
from highwater.world.real.network import RealNetwork

from .conftest import Net, Wait, echo, entry, serving


async def test_requests_of_all_sizes_come_back(network: Net) -> None:
    async with serving(network, entry(echo)) as s:
        client = await s.connect()
        for size in (0, 1, 100, 65_530, 65_536, 70_000, 1_500_000, 9_000_000):
            body = bytes([size % 251]) * size
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send, body)
                _, answer = await client.receive()
            assert answer == b"<" + body + b">"


async def test_a_frame_in_single_bytes(network: Net) -> None:
    async with serving(network, entry(echo)) as s:
        client = await s.connect()
        frame = pack(">ihhihs", 13, 1, 4, 9, 1, b"c") + b"xy"
        for byte in frame * 2:
            await client.stream.send_all(bytes([byte]))
            await trio.sleep(0)
        assert await client.receive() == (9, b"<xy>")
        assert await client.receive() == (9, b"<xy>")


async def test_pipelined_requests_are_handled_one_at_a_time_in_order(network: Net) -> None:
    running = most = 0

    async def slow(ctx: Context, body: memoryview) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        running -= 1
        return Response(parts=[bytes(body)])

    async with serving(network, entry(slow)) as s:
        client = await s.connect()
        frames = b""
        for i in range(300):
            body = b"%d" % i * 200
            frames += pack(">ihhihs", 11 + len(body), 1, 4, i, 1, b"c") + body
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream.send_all, frames)
            for i in range(300):
                assert await client.receive() == (i, b"%d" % i * 200)
    assert most == 1


@pytest.mark.thorough
async def test_a_slow_reader_holds_up_nobody(network: Net) -> None:
    def handle(ctx: Context, body: memoryview) -> Response:
        return Response(parts=[b"x" * 30_000_000 if bytes(body) == b"big" else b"small"])

    async with serving(network, entry(handle), num_network_threads=1, num_io_threads=1) as s:
        slow = [await s.connect() for _ in range(3)]
        for client in slow:
            await client.send(b"big")
        quick = await s.connect()
        for _ in range(20):
            assert await quick.call(b"") == b"small"
        for client in slow:
            assert len((await client.receive())[1]) == 30_000_000


async def test_a_half_closed_client_still_gets_its_answer(network: Net) -> None:
    async with serving(network, entry(echo)) as s:
        client = await s.connect()
        await client.send(b"a")
        await client.stream.send_eof()
        assert await client.receive() == (7, b"<a>")
        assert await client.closed()


async def test_a_delayed_answer_comes_when_its_key_is_checked(network: Net) -> None:
    waiting: list[Wait] = []

    def handle(ctx: Context, body: memoryview) -> Reply:
        if bytes(body) == b"wait":
            waiting.append(Wait())
            return Delayed(waiting[-1])
        for op in waiting:
            op.ready = True
        ctx.services.completions.add("Fetch", ["k"])
        return Response(parts=[b"go"])

    async with serving(network, entry(handle)) as s:
        first, second = await s.connect(), await s.connect()
        await first.send(b"wait")
        assert await second.call(b"") == b"go" or not waiting
        while not waiting:
            await trio.sleep(0)
        assert await second.call(b"") == b"go"
        assert await first.receive() == (7, b"done")
        metrics = s.services.metrics.by_name()["Fetch"]
        assert metrics.remote.count == 3


async def test_a_client_that_went_away_while_its_answer_was_delayed(network: Net) -> None:
    waiting: list[Wait] = []

    def handle(ctx: Context, body: memoryview) -> Reply:
        waiting.append(Wait())
        waiting[-1].ready = len(waiting) > 1
        return Delayed(waiting[-1])

    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        await client.send(b"")
        while not s.services.purgatories.pending("Fetch"):
            await trio.sleep(0)
        await client.stream.aclose()
        waiting[0].ready = True
        s.services.completions.add("Fetch", ["k"])
        while s.server.connections():
            await trio.sleep(0.001)
        other = await s.connect()
        assert await other.call(b"") == b"done"


async def test_acks_0_has_no_answer_and_may_close(network: Net) -> None:
    def handle(ctx: Context, body: memoryview) -> Reply:
        if bytes(body) == b"quiet":
            return NoResponse()
        return NoResponse(close=True) if bytes(body) == b"close" else echo(ctx, body)

    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        await client.send(b"quiet")
        assert await client.call(b"loud", id_=8) == b"<loud>"
        await client.send(b"close")
        assert await client.closed()


async def test_errors_become_answers(network: Net) -> None:
    def refuse(ctx: Context, request: Any) -> Reply:
        raise ApiError(ErrorCode.NOT_COORDINATOR)

    def crash(ctx: Context, request: Any) -> Reply:
        raise ZeroDivisionError

    async def later(ctx: Context, body: memoryview) -> Reply:
        await trio.lowlevel.checkpoint()
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    own = lambda ctx, request, code: Response(parts=[pack(">h", code)])  # noqa: E731
    async with serving(
        network,
        entry(refuse, key=12, versions=(0, 4), raw=False),
        entry(crash, key=9, error_response=own, versions=(0, 5)),
        entry(crash, key=2, versions=(0, 5)),
        entry(later, key=3, error_response=own, versions=(0, 5)),
        entry(lambda ctx, body: Delayed(Wait()), key=1, error_response=own),
    ) as s:
        client = await s.connect()
        heartbeat = bytes(encode_request(HeartbeatRequest(group_id="g", member_id="m"), 3))
        answer = decode_response(12, 3, await client.call(heartbeat, key=12, version=3))
        assert answer.error_code == 16
        assert await client.call(b"", key=9) == pack(">h", -1)
        assert await client.call(b"", key=3) == pack(">h", 41)
        assert s.services.metrics.requests["Heartbeat"].errors == {"NOT_COORDINATOR": 1}
        await client.send(b"", key=2)  # ListOffsets has no place for an error of the whole request
        assert await client.closed()


async def test_an_error_of_a_delayed_operation_is_answered(network: Net) -> None:
    op = Wait(fails=True)
    own = lambda ctx, request, code: Response(parts=[pack(">h", code)])  # noqa: E731
    async with serving(network, entry(lambda c, b: Delayed(op), error_response=own)) as s:
        client = await s.connect()
        await client.send(b"")
        while not s.services.purgatories.pending("Fetch"):
            await trio.sleep(0)
        op.ready = True
        s.services.completions.add("Fetch", ["k"])
        assert await client.receive() == (7, pack(">h", 6))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pack(">i", 2_000_000_000) + b"x" * 20, "socket.request.max.bytes"),
        (pack(">i", -5) + b"x" * 20, "a request of -5 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "not the Kafka protocol"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 40, "TLS handshake"),
        (pack(">i", 3) + b"abc", "shorter than a request header"),
        (pack(">ihhihb", 11, 1, 99, 5, -1, 0), "v99 is not supported"),
        (pack(">ihhih", 10, 333, 0, 5, -1), "Unknown(333) v0 is not supported"),
        (pack(">ihhih", 14, 3, 1, 5, -1) + b"\x7f\xff\xff\xff", "request v1 of 4 bytes"),
        (pack(">ihhih", 10, 9, 1, 5, -1), "garbled"),
    ],
)
async def test_garbage_closes_with_one_line(
    network: Net, data: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(ctx: Context, body: memoryview) -> Reply:
        raise BadMessage("garbled")

    entries = entry(echo), entry(echo, key=3, raw=False), entry(bad, key=9)
    with caplog.at_level(logging.INFO):
        async with serving(network, *entries) as s:
            good, client = await s.connect(), await s.connect()
            await client.stream.send_all(data)
            assert await client.closed()
            assert await good.call(b"fine") == b"<fine>"
    lines = [
        r.getMessage() for r in caplog.records if r.name.startswith("highwater.broker.network")
    ]
    assert len(lines) == 1
    assert words in lines[0]
    assert lines[0].startswith("closing connection 127.0.0.1:")


async def test_a_large_frame_that_never_comes_holds_no_memory(network: Net) -> None:
    async with serving(network, entry(echo)) as s:
        client = await s.connect()
        await client.stream.send_all(pack(">i", 100_000_000) + b"x" * 100)
        while not s.server.connections() or s.server.connections()[0]._frame is None:
            await trio.sleep(0.001)
        frame = s.server.connections()[0]._frame
        assert frame is not None
        assert len(frame) <= 1 << 20


async def test_api_versions_of_an_unknown_version_is_answered_in_v0(network: Net) -> None:
    async with serving(network, entry(echo, key=18, versions=(0, 4), raw=False)) as s:
        client = await s.connect()
        answer = decode_response(18, 0, await client.call(b"", key=18, version=9))
        assert answer.error_code == 35
        assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]


async def test_the_clients_software_is_known_after_api_versions(network: Net) -> None:
    name = "kafka_server_socketservermetrics_connections"

    def known(server: SocketServer) -> list[dict[str, str]]:
        (family,) = (f for f in server.metrics.families(0) if f.name == name)
        return [
            {k: v for k, v in sample.labels if k.startswith("client")} for sample in family.samples
        ]

    async with serving(network, entry(echo, key=18, versions=(0, 4))) as s:
        client = await s.connect()
        request = ApiVersionsRequest(client_software_name="lib", client_software_version="1")
        body = bytes(encode_request(request, 3))
        await client.call(body, key=18, version=0)
        unknown = {"client_software_name": "unknown", "client_software_version": "unknown"}
        assert known(s.server) == [unknown]
    async with serving(network, entry(answer_18, key=18, versions=(0, 4), raw=False)) as s:
        client = await s.connect()
        await client.call(body, key=18, version=3)
        assert known(s.server) == [{"client_software_name": "lib", "client_software_version": "1"}]


def answer_18(ctx: Context, request: Any) -> Reply:
    return Response(parts=[b""])


async def test_drain_answers_what_was_read_and_accepts_no_more(network: Net) -> None:
    gate = trio.Event()

    async def handle(ctx: Context, body: memoryview) -> Reply:
        await gate.wait()
        return echo(ctx, body)

    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        await client.send(b"a")
        await client.send(b"b")
        while not any(c.in_flight for c in s.server.connections()):
            await trio.sleep(0.001)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s.server.drain)
            await trio.sleep(0.01)
            gate.set()
        assert await client.receive() == (7, b"<a>")
        with pytest.raises(OSError):
            await s.connect()


async def test_a_port_in_use_is_one_clear_line(network: Net) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with pytest.raises(BindError, match=f"127.0.0.1:{port}: the port is in use; stop what"):
        async with serving(network, listeners=f"PLAINTEXT://127.0.0.1:{port}"):
            pass
    taken.close()


@pytest.mark.thorough
async def test_an_idle_connection_costs_little() -> None:
    """Objects are counted, not bytes: an idle connection holds no buffer and no task."""
    async with serving(RealNetwork(), entry(echo)) as s:
        await (await s.connect()).call(b"")
        before = trio.lowlevel.current_statistics().tasks_living
        clients = [await s.connect() for _ in range(200)]
        for client in clients:
            await client.call(b"x")
        assert trio.lowlevel.current_statistics().tasks_living == before
        for connection in s.server.connections():
            assert connection._frame is None
            assert connection.leftover is None
            assert not connection.out
