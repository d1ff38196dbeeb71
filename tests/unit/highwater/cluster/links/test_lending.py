"""A broker's own network layer has the port of the proxy in front of it until links are touched."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from struct import pack

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from highwater.broker.context import Context, Delayed, Reply
from highwater.broker.network.handler_pool import HandlerEntry
from highwater.broker.request.response import FileSlice, NoResponse, Response
from highwater.cluster.links.acceptor import Acceptor
from highwater.cluster.links.frames import LOOK
from highwater.cluster.links.lending import Lender
from highwater.cluster.links.link_rules import CLIENTS, Action, Links, Rule, Side
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.ports import free_ports
from highwater.kafka.wire.header import request_header
from highwater.world.real.borrowed_sockets import DoorNetwork, borrow
from highwater.world.real.disk import RealDisk
from tests.unit.broker.network.conftest import Client, Serving, Wait, echo, entry, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lends sockets")
HEARTBEAT = b"\0\1g\0\0\0\0\0\1m"
"""Of version 1: group, generation, member."""
HEARTBEAT_27 = b"\0\0\0\0" + pack(">h", 27)
TO, BACK = (CLIENTS, "broker-1"), ("broker-1", CLIENTS)


@dataclass
class Lent:
    links: Links
    lender: Lender
    port: int
    serving: Serving

    async def connect(self) -> Client:
        return Client(await trio.open_tcp_stream("127.0.0.1", self.port))

    async def touch(self) -> None:
        self.lender.recall()
        assert await self.lender.is_back()


@asynccontextmanager
async def lending(folder: Path) -> AsyncIterator[tuple[Lender, Links, int, int]]:
    """The lender, its proxy's links and port, and the port of the broker itself."""
    links, (target, port) = Links(), free_ports(2)
    proxy = Proxy(links, target, owner="broker-1")
    lender = Lender(folder / "link-door", {"PLAINTEXT": proxy})
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.serve, port)
        await nursery.start(lender.serve)
        with trio.fail_after(20):
            yield lender, links, port, target
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def lent(folder: Path, *entries: HandlerEntry) -> AsyncIterator[Lent]:
    async with lending(folder) as (lender, links, port, target):
        network, own = DoorNetwork(str(lender.path)), f"PLAINTEXT://127.0.0.1:{target}"
        async with serving(network, *entries, listeners=own) as s:
            yield Lent(links, lender, port, s)


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(5):
        while not condition():
            await wait_all_tasks_blocked(0.001)


async def test_what_is_lent_at_once_is_not_accepted() -> None:
    accepted: list[trio.SocketStream] = []

    async def take(stream: trio.SocketStream) -> None:
        accepted.append(stream)

    for steps in range(5):
        acceptor = Acceptor(await trio.open_tcp_listeners(0, host="127.0.0.1"))
        address = acceptor.listeners[0].socket.getsockname()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acceptor.run, take, nursery)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            acceptor.lend()
            async with await trio.open_tcp_stream(*address):
                await wait_all_tasks_blocked()
                assert not accepted, steps
                acceptor.take_back()
                await until(lambda: accepted)
            accepted.clear()
            nursery.cancel_scope.cancel()


async def test_nothing_passes_the_proxy_until_links_are_touched(tmp_path: Path) -> None:
    async with lent(tmp_path, entry(echo)) as at:
        client = await at.connect()
        assert await client.call(b"a") == b"<a>"
        assert not at.links.connections
        await at.touch()
        assert [(c.source, c.target) for c in at.links.live] == [TO]
        assert await client.call(b"b") == b"<b>"
        assert (at.links.passed[TO], at.links.passed[BACK]) == (1, 1)
        assert len(at.serving.server.connections()) == 1
        other = await at.connect()
        assert await other.call(b"c") == b"<c>"
        assert at.links.connections[TO] == 2


async def test_a_cut_stops_a_connection_that_was_handed_over(tmp_path: Path) -> None:
    async with lent(tmp_path, entry(echo)) as at:
        client = await at.connect()
        assert await client.call(b"a") == b"<a>"
        await at.touch()
        at.links.cut(*TO)
        await wait_all_tasks_blocked()
        assert not at.links.stopped  # it has met nothing yet
        await client.send(b"b")
        await until(lambda: at.links.stopped[TO])
        assert not at.links.passed[BACK]
        at.links.heal()
        assert await client.receive() == (7, b"<b>")


async def test_a_request_that_is_not_answered_yet_is_known(tmp_path: Path) -> None:
    """Its answer can be dropped, and the one after it is matched to its own request."""
    waiting: list[Wait] = []

    def handle(ctx: Context, body: memoryview) -> Reply:
        if bytes(body) != b"wait":
            return echo(ctx, body)
        waiting.append(Wait())
        return Delayed(waiting[-1])

    async with lent(tmp_path, entry(handle)) as at:
        client = await at.connect()
        await client.send(b"wait", id_=11)
        await until(lambda: waiting)
        await at.touch()
        rule = at.links.add(Rule(Action.DROP, "Fetch", Side.RESPONSE, target=CLIENTS))
        waiting[0].ready = True
        at.serving.services.completions.add("Fetch", ["k"])
        await until(lambda: rule.matched)
        assert await client.call(b"b", id_=12) == b"<b>"


async def test_what_came_of_a_request_goes_back_and_on(tmp_path: Path) -> None:
    frame = request_header(1, 4, 5, "test") + b"x" * 100_000
    whole = pack(">i", len(frame)) + frame
    for begun in (1, 4, 20, 90_000):
        async with lent(tmp_path, entry(echo)) as at:
            client = await at.connect()
            assert await client.call(b"a") == b"<a>"
            held = at.serving.server.connections()[0]
            await client.stream.send_all(whole[:begun])
            await until(lambda c=held: c.leftover or c.awaited)  # type: ignore[misc]
            # while there is a rule, nothing goes on before a request's head is whole
            at.links.add(Rule(Action.HOLD, "Metadata"))
            await at.touch()
            assert begun > LOOK or not held.reserved
            await client.stream.send_all(whole[begun:])
            assert await client.receive() == (5, b"<" + b"x" * 100_000 + b">")
            assert at.links.passed[TO] == 1


async def test_an_answer_that_is_half_sent_stops_and_goes_on(tmp_path: Path) -> None:
    """Of buffers and of a segment; an error of the proxy's own and the next answer wait for it."""
    path = tmp_path / "segment"
    path.write_bytes(Random(1).randbytes(20_000_000))
    file = RealDisk().open(str(path))

    def handle(ctx: Context, body: memoryview) -> Response:
        if bytes(body) == b"small":
            return Response(parts=[b"small"])
        return Response(parts=[b"begin", FileSlice(file, 0, file.size), b"end"])

    async with lent(tmp_path, entry(handle)) as at:
        client = await at.connect()
        await client.send(b"large", id_=1)
        await until(at.serving.server.connections)
        held = at.serving.server.connections()[0]
        await until(lambda: 0 < held.unsent < file.size)
        await at.touch()
        at.links.cut(*BACK)
        with trio.move_on_after(0.2) as scope:
            await client._exactly(file.size)
        assert scope.cancelled_caught  # what the sockets hold is less than all of it
        rule = at.links.add(Rule(Action.ANSWER, "Heartbeat", source=CLIENTS, error=27))
        await client.send(HEARTBEAT, key=12, version=1, id_=2)
        await until(lambda: rule.matched)
        at.links.heal()
        assert await client.receive() == (1, b"begin" + path.read_bytes() + b"end")
        assert await client.receive() == (2, HEARTBEAT_27)
        assert await client.call(b"small", id_=3) == b"small"
        assert at.links.passed[BACK] == 1
    file.close()


async def test_a_request_without_an_answer_is_not_waited_for(tmp_path: Path) -> None:
    """An error of the proxy's own keeps its place behind those that the broker will answer."""
    going = trio.Event()

    async def handle(ctx: Context, body: memoryview) -> Reply:
        await going.wait()
        return NoResponse()

    async with lent(tmp_path, entry(handle, key=0), entry(echo)) as at:
        client = await at.connect()
        await client.send(b"\xff\xff" + b"\0\0" + b"\0\0\0\1" + b"\0\0\0\0", key=0, version=3)
        await until(lambda: [c for c in at.serving.server.connections() if c.pending])
        await at.touch()
        at.links.add(Rule(Action.ANSWER, "Heartbeat", source=CLIENTS, error=27))
        await client.send(HEARTBEAT, key=12, version=1, id_=9)
        assert await client.receive() == (9, HEARTBEAT_27)
        going.set()


async def test_who_has_said_nothing_is_known_by_its_first_request(tmp_path: Path) -> None:
    async with lent(tmp_path, entry(echo)) as at:
        client = await at.connect()
        await until(at.serving.server.connections)
        await at.touch()
        frame = request_header(1, 4, 5, "broker-2-fetcher-0") + b"a"
        await client.stream.send_all(pack(">i", len(frame)) + frame)
        assert await client.receive() == (5, b"<a>")
        assert dict(at.links.connections) == {("broker-2", "broker-1"): 1}


async def test_a_connection_ends_as_it_would_have(tmp_path: Path) -> None:
    async with lent(tmp_path, entry(echo)) as at:
        going, closed, silent = [await at.connect() for _ in range(3)]
        for client in (going, closed):
            assert await client.call(b"a") == b"<a>"
        await until(lambda: len(at.serving.server.connections()) == 3)
        await at.touch()
        await closed.stream.aclose()
        await until(lambda: len(at.serving.server.connections()) == 2)
        for connection in at.serving.server.connections():
            connection.processor.close(connection)
        assert await going.closed()
        assert await silent.closed()
        await until(lambda: not at.links.live)


async def test_a_broker_that_ends_gives_its_port_back(tmp_path: Path) -> None:
    async with lending(tmp_path) as (lender, links, port, target):
        network, own = DoorNetwork(str(lender.path)), f"PLAINTEXT://127.0.0.1:{target}"
        for _ in range(2):
            async with serving(network, entry(echo), listeners=own):
                client = Client(await trio.open_tcp_stream("127.0.0.1", port))
                assert await client.call(b"a") == b"<a>"
                assert not links.connections
            await until(lambda: lender._door is None)
            left = Client(await trio.open_tcp_stream("127.0.0.1", port))
            await left.stream.send_all(b"\0")
            assert await left.closed()
        lender.recall()
        async with serving(network, entry(echo), listeners=own):
            client = Client(await trio.open_tcp_stream("127.0.0.1", port))
            assert await client.call(b"a") == b"<a>"
            assert links.connections[TO]


async def test_a_broker_that_does_not_answer_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("highwater.cluster.links.lending.RECALL_S", 0.01)
    async with lending(tmp_path) as (lender, _, _, _):
        loan = await borrow(str(lender.path))
        assert loan is not None
        lender.recall()
        assert not await lender.is_back()
        loan.close()
        await until(lambda: lender._door is None)
        assert await lender.is_back()
        assert await borrow(str(lender.path)) is None


@pytest.mark.parametrize("seed", range(8))
async def test_no_byte_is_lost_whenever_it_happens(tmp_path: Path, seed: int) -> None:
    """Pipelined requests and their answers, of all sizes; some are not read for a while."""
    rng = Random(seed)
    sizes = [rng.choice((0, 3, 1000, 70_000, 900_000)) for _ in range(60)]
    bodies = [rng.randbytes(size) for size in sizes]

    async def send(client: Client) -> None:
        for number, body in enumerate(bodies):
            frame = request_header(1, 4, number, "test") + body
            whole = pack(">i", len(frame)) + frame
            part = rng.randrange(len(whole))
            await client.stream.send_all(whole[:part])
            await trio.sleep(0)
            await client.stream.send_all(whole[part:])

    async with lent(tmp_path, entry(echo)) as at:
        clients = [await at.connect() for _ in range(3)]
        touched_at = rng.randrange(20)

        async def read(client: Client) -> None:
            for number, body in enumerate(bodies):
                if client is clients[0] and number == touched_at:
                    await at.touch()
                assert await client.receive() == (number, b"<" + body + b">")

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(send, client)
                nursery.start_soon(read, client)
        assert sum(at.links.passed.values()) > 0
        assert len(at.links.live) == 3
