"""The client's connection over real sockets, against a peer that the test scripts by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from struct import pack, unpack_from

import pytest
import trio
import trio.testing

from highwater.kafka.client.connection import ClientConnection, ConnectionLost, RequestTimedOut
from highwater.kafka.client.reconnecting import Reconnecting
from highwater.kafka.wire.header import parse_request_header
from highwater.world.real.network import RealNetwork


class Peer:
    """The broker's end: reads frames, answers when told."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._data = b""

    async def request(self) -> tuple[int, bytes]:
        while len(self._data) < 4 or len(self._data) < 4 + unpack_from(">i", self._data)[0]:
            more = await self.stream.receive_some()
            assert more, "the client closed"
            self._data += more
        (size,) = unpack_from(">i", self._data)
        frame, self._data = self._data[4 : 4 + size], self._data[4 + size :]
        header = parse_request_header(frame)
        return header.correlation_id, frame[header.body_position :]

    async def answer(self, correlation_id: int, body: bytes) -> None:
        await self.stream.send_all(pack(">ii", 4 + len(body), correlation_id) + body)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ClientConnection, Peer]]:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    connection = await ClientConnection.open(RealNetwork(), "127.0.0.1", port, "test")
    stream = await listener.accept()
    try:
        yield connection, Peer(stream)
    finally:
        connection.close()
        await stream.aclose()
        await listener.aclose()


def caller(
    connection: ClientConnection, got: dict[str, object], body: bytes, timeout_s: float = 5
) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        try:
            got[body.decode()] = bytes(await connection.call_raw(3, 1, [body], timeout_s))
        except OSError as exc:
            got[body.decode()] = exc

    return run


async def test_pipelined_calls_get_their_own_answers() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        for name in (b"a", b"b", b"c"):
            nursery.start_soon(caller(connection, got, name))
        requests = [await peer.request() for _ in range(3)]
        assert sorted(body for _, body in requests) == [b"a", b"b", b"c"]
        for correlation_id, body in requests:
            await peer.answer(correlation_id, body * 2)
    assert got == {"a": b"aa", "b": b"bb", "c": b"cc"}


async def test_large_request_and_large_answer() -> None:
    got: dict[str, object] = {}
    big = b"x" * 3_000_000
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(caller(connection, got, big))
        nursery.start_soon(caller(connection, got, b"small"))
        first = await peer.request()
        second = await peer.request()
        assert {len(first[1]), len(second[1])} == {5, 3_000_000}
        await peer.answer(first[0], first[1])
        await peer.answer(second[0], second[1])
    assert got[big.decode()] == big
    assert got["small"] == b"small"


async def test_frames_in_any_pieces() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(caller(connection, got, b"a"))
        nursery.start_soon(caller(connection, got, b"b"))
        ids = [(await peer.request())[0] for _ in range(2)]
        whole = b"".join(pack(">ii", 20004, i) + b"%d" % i * 20000 for i in ids)
        for start in range(0, len(whole), 7001):
            await peer.stream.send_all(whole[start : start + 7001])
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(len(str(v)) for v in got.values()) == [20003, 20003]


async def test_a_late_answer_is_dropped_and_the_connection_lives() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(caller(connection, got, b"slow", 0.01))
        slow_id, _ = await peer.request()
        nursery.start_soon(caller(connection, got, b"quick"))
        quick_id, _ = await peer.request()
        while "slow" not in got:
            await trio.testing.wait_all_tasks_blocked(0.005)
        await peer.answer(slow_id, b"late")
        await peer.answer(quick_id, b"now")
    assert isinstance(got["slow"], RequestTimedOut)
    assert got["quick"] == b"now"


async def test_a_call_ends_when_its_scope_is_cancelled() -> None:
    scope = trio.CancelScope()
    async with connected() as (connection, peer), trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(RequestTimedOut):
                await connection.call_raw(3, 1, [b"given up"], 60, scope)
            assert trio.current_time() < scope.deadline

        nursery.start_soon(call)
        given_up, _ = await peer.request()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        got: dict[str, object] = {}
        nursery.start_soon(caller(connection, got, b"next"))
        following, _ = await peer.request()
        await peer.answer(given_up, b"late")
        await peer.answer(following, b"now")
    assert got["next"] == b"now"


async def test_the_peers_end_fails_every_call_and_wakes_who_waits_for_it() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.wait_closed)
            nursery.start_soon(caller(connection, got, b"a"))
            nursery.start_soon(caller(connection, got, b"b"))
            await peer.request()
            await peer.request()
            await peer.stream.aclose()
        assert connection.closed
        assert isinstance(got["a"], ConnectionLost)
        assert isinstance(got["b"], ConnectionLost)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await connection.call_raw(3, 1, [b""], 1)


async def test_wait_closed_gives_the_reading_back_to_calls() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        with trio.move_on_after(0.01):
            await connection.wait_closed()
        nursery.start_soon(caller(connection, got, b"a"))
        await peer.answer((await peer.request())[0], b"1")
    assert got == {"a": b"1"}


async def test_an_answer_out_of_order_breaks_the_connection() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(caller(connection, got, b"a"))
        correlation_id, _ = await peer.request()
        await peer.answer(correlation_id + 1, b"?")
    assert isinstance(got["a"], ConnectionLost)


async def test_closing_here_fails_calls_in_flight() -> None:
    got: dict[str, object] = {}
    async with connected() as (connection, peer), trio.open_nursery() as nursery:
        nursery.start_soon(caller(connection, got, b"a"))
        await peer.request()
        connection.close()
    assert isinstance(got["a"], ConnectionLost)


async def test_nobody_listens() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with pytest.raises(ConnectionRefusedError):
        await ClientConnection.open(RealNetwork(), "127.0.0.1", port, "test")


async def test_a_reconnecting_one_asks_where_its_peer_is_after_each_loss() -> None:
    listeners = [(await trio.open_tcp_listeners(0, host="127.0.0.1"))[0] for _ in range(2)]
    ports = [listener.socket.getsockname()[1] for listener in listeners]
    asked: list[int] = []

    def address() -> tuple[str, int]:
        asked.append(ports[len(asked)])
        return "127.0.0.1", asked[-1]

    link = Reconnecting(RealNetwork(), "test", address, 5)
    assert not link.is_open
    first = await link.open()
    assert await link.open() is first
    assert (asked, link.is_open) == (ports[:1], True)
    await (await listeners[0].accept()).aclose()
    with trio.fail_after(5):
        await first.wait_closed()
    assert not link.is_open
    second = await link.open()
    assert (asked, second is first) == (ports, False)
    link.close()
    assert second.closed
    for listener in listeners:
        await listener.aclose()
