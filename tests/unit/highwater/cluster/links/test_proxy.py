"""A proxy on real sockets between a stand-in client and a stand-in broker that answers with an
echo."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from highwater.cluster.links.link_rules import Action, Links, Rule, Side
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.links.slowness import Slowness
from highwater.cluster.ports import free_ports
from highwater.kafka.wire.header import request_header

METADATA, FETCH = 3, 1


def request(api: int, correlation_id: int, client_id: str) -> bytes:
    body = request_header(api, 4, correlation_id, client_id) + b"body"
    return struct.pack(">i", len(body)) + body


async def read_frame(stream: trio.SocketStream) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        got = await stream.receive_some(1)
        if not got:
            raise trio.BrokenResourceError("end of stream")
        data += bytes(got)
    return data


async def echo_broker(stream: trio.SocketStream) -> None:
    """Answers each request with its correlation id."""
    try:
        while True:
            frame = await read_frame(stream)
            await stream.send_all(struct.pack(">i", 4) + frame[8:12])
    except trio.BrokenResourceError:
        return


@asynccontextmanager
async def proxied(links: Links, opaque: bool = False) -> AsyncIterator[int]:
    """The port of a proxy in front of broker-1."""
    target, port = free_ports(2)
    proxy = Proxy(links, target, owner="broker-1", opaque=opaque)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: trio.serve_tcp(
            echo_broker, target, host="127.0.0.1", task_status=task_status))  # fmt: skip
        await nursery.start(proxy.serve, port)
        yield port
        nursery.cancel_scope.cancel()


async def call(stream: trio.SocketStream, api: int, number: int, client: str) -> int:
    await stream.send_all(request(api, number, client))
    answer = await read_frame(stream)
    return int(struct.unpack(">i", answer[4:8])[0])


async def test_passes_and_knows_who_is_asking() -> None:
    links = Links()
    async with proxied(links) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(stream, METADATA, 7, "broker-2-fetcher-0") == 7
        other = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(other, METADATA, 8, "my-app") == 8
    assert links.connections["broker-2", "broker-1"] == 1
    assert links.connections["clients", "broker-1"] == 1


async def test_cut_stops_one_source_only_and_healing_delivers_what_waited() -> None:
    links = Links()
    async with proxied(links) as port:
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        app = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(peer, METADATA, 1, "broker-2-fetcher-0") == 1
        links.cut("broker-2", "broker-1")
        await peer.send_all(request(METADATA, 2, "broker-2-fetcher-0"))
        assert await call(app, METADATA, 3, "my-app") == 3
        with trio.move_on_after(0.05) as scope:
            await read_frame(peer)
        assert scope.cancelled_caught
        links.heal()
        assert (await read_frame(peer))[4:8] == struct.pack(">i", 2)


async def test_a_controller_apart_is_known_by_its_own_name() -> None:
    """Its client id has a number as a broker's has."""
    links = Links()
    links.names["broker-101"] = "controller-101"
    async with proxied(links) as port:
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(peer, FETCH, 1, "raft-client-101") == 1
    assert links.connections["controller-101", "broker-1"] == 1


async def test_an_answer_is_held_until_it_is_released() -> None:
    links = Links()
    rule = Rule(Action.HOLD, "Fetch", Side.RESPONSE, source="broker-1", target="broker-2")
    links.add(rule)
    async with proxied(links) as port:
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(peer, METADATA, 1, "broker-2-fetcher-0") == 1
        await peer.send_all(request(FETCH, 2, "broker-2-fetcher-0"))
        with trio.fail_after(5):
            while not rule.matched:
                await wait_all_tasks_blocked(0.01)
        with trio.move_on_after(0.1) as scope:
            await read_frame(peer)
        assert scope.cancelled_caught
        links.release(rule)
        assert (await read_frame(peer))[4:8] == struct.pack(">i", 2)
        assert (rule.arrived, rule.lost) == (1, 0)


async def test_what_is_held_goes_with_its_connection() -> None:
    links = Links()
    rule = links.add(Rule(Action.HOLD, "Fetch", Side.RESPONSE, limit=0))
    async with proxied(links) as port:
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        await peer.send_all(request(FETCH, 2, "broker-2-fetcher-0"))
        with trio.fail_after(5):
            while not rule.matched:
                await wait_all_tasks_blocked(0.01)
            await peer.aclose()
            while not rule.lost:
                await wait_all_tasks_blocked(0.01)
        links.release(rule)
    assert (rule.matched, rule.arrived, rule.lost) == (1, 0, 1)


async def test_a_dropped_request_gets_no_answer_and_the_next_one_does() -> None:
    links = Links()
    links.add(Rule(Action.DROP, "Fetch"))
    async with proxied(links) as port:
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        await peer.send_all(request(FETCH, 1, "broker-2"))
        assert await call(peer, METADATA, 2, "broker-2") == 2


async def test_a_refused_connection_is_refused_to_the_client_too() -> None:
    links = Links()
    target, port = free_ports(2)
    async with trio.open_nursery() as nursery:
        proxy = Proxy(links, target, owner="broker-1", zookeeper=False)
        await nursery.start(proxy.serve, port)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(request(METADATA, 1, "my-app"))
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(5):
            await read_frame(stream)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def zk_frame(xid: int, kind: int, body: bytes = b"") -> bytes:
    frame = struct.pack(">ii", xid, kind) + body
    return struct.pack(">i", len(frame)) + frame


def set_data(xid: int, path: str) -> bytes:
    name = path.encode()
    return zk_frame(xid, 5, struct.pack(">i", len(name)) + name + struct.pack(">ii", -1, 1))


async def test_a_held_zookeeper_write_lets_pings_pass_and_keeps_the_order_of_the_rest() -> None:
    links = Links()
    rule = links.add(Rule(Action.HOLD, "setData", source="broker-1", path="/state$"))
    target, port = free_ports(2)
    arrived: list[int] = []

    async def zookeeper(stream: trio.SocketStream) -> None:
        try:
            await read_frame(stream)  # the handshake
            await stream.send_all(struct.pack(">i", 8) + bytes(8))
            while True:
                xid = (await read_frame(stream))[4:8]
                arrived.append(struct.unpack(">i", xid)[0])
                await stream.send_all(struct.pack(">i", 16) + xid + bytes(12))
        except trio.BrokenResourceError:
            return

    async def until(expected: list[int]) -> None:
        with trio.fail_after(5):
            while arrived != expected:
                await wait_all_tasks_blocked(0.01)

    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: trio.serve_tcp(
            zookeeper, target, host="127.0.0.1", task_status=task_status))  # fmt: skip
        proxy = Proxy(links, target, owner="broker-1", zookeeper=True)
        await nursery.start(proxy.serve, port)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(struct.pack(">i", 8) + bytes(8))
        await stream.send_all(set_data(1, "/other"))
        await stream.send_all(set_data(2, "/a/state") + set_data(3, "/other") + zk_frame(-2, 11))
        await until([1, -2])
        with trio.fail_after(5):
            await read_frame(stream)
            answered = [(await read_frame(stream))[4:8] for _ in range(2)]
        assert answered == [struct.pack(">i", 1), struct.pack(">i", -2)], "answers are not held"
        links.release(rule)
        await until([1, -2, 2, 3])
        await stream.send_all(set_data(4, "/a/state"))
        await until([1, -2, 2, 3, 4])
        assert (rule.matched, rule.arrived, rule.lost) == (1, 1, 0)
        again = links.add(Rule(Action.HOLD, "setData", source="broker-1", path="/state$"))
        await stream.send_all(set_data(5, "/a/state") + zk_frame(-2, 11))
        await until([1, -2, 2, 3, 4, -2])
        await stream.aclose()
        with trio.fail_after(5):
            while not again.lost:
                await wait_all_tasks_blocked(0.01)
        assert (again.matched, again.arrived) == (1, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.thorough
async def test_latency_delays_requests_in_flight_together_each_way() -> None:
    links = Links()
    slow = Slowness(latency_s=0.3)
    async with proxied(links) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(stream, METADATA, 1, "my-app") == 1
        links.slow(slow, ("clients", "broker-1"), ("broker-1", "clients"))
        began = trio.current_time()
        for number in range(2, 8):
            await stream.send_all(request(METADATA, number, "my-app"))
        answers = [struct.unpack(">i", (await read_frame(stream))[4:])[0] for _ in range(2, 8)]
        took = trio.current_time() - began
        assert answers == [2, 3, 4, 5, 6, 7]
        assert 0.6 <= took < 6 * 0.3, "as long as one after the other"
        assert slow.slowed == 12
        links.quicken(slow)
        began = trio.current_time()
        assert await call(stream, METADATA, 8, "my-app") == 8
        assert trio.current_time() - began < 0.3


async def test_latency_of_one_source_leaves_others_alone() -> None:
    links = Links()
    slow = Slowness(latency_s=30)
    links.slow(slow, ("broker-2", "broker-1"))
    async with proxied(links) as port:
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        await peer.send_all(request(FETCH, 1, "broker-2-fetcher-0"))
        other = await trio.open_tcp_stream("127.0.0.1", port)
        with trio.fail_after(20):
            assert await call(other, METADATA, 8, "my-app") == 8
            while not slow.slowed:
                await trio.sleep(0.001)


@pytest.mark.parametrize("how", [{"latency_s": 300.0}, {"bytes_per_s": 0.001}])
async def test_what_was_held_up_goes_on_when_the_links_are_healed(how: dict[str, Any]) -> None:
    links, slow = Links(), Slowness(**how)
    links.slow(slow, ("clients", "broker-1"))
    async with proxied(links) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(request(METADATA, 1, "my-app"))
        with trio.fail_after(20):
            while not slow.slowed:
                await trio.sleep(0.001)
            await wait_all_tasks_blocked()
            links.heal_all()
            await read_frame(stream)


@pytest.mark.thorough
async def test_bandwidth_spreads_the_bytes() -> None:
    links = Links()
    async with proxied(links) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(stream, METADATA, 1, "my-app") == 1
        frame = request(METADATA, 2, "my-app" + "." * 1000)
        links.slow(Slowness(bytes_per_s=2 * len(frame)), ("clients", "broker-1"))
        began = trio.current_time()
        await stream.send_all(frame)
        await read_frame(stream)
        assert trio.current_time() - began >= 0.5


async def test_reset_ends_the_connections_of_one_pair_at_both_ends() -> None:
    links = Links()
    async with proxied(links) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        other = await trio.open_tcp_stream("127.0.0.1", port)
        assert await call(stream, METADATA, 1, "my-app") == 1
        assert await call(other, METADATA, 2, "broker-2-fetcher-0") == 2
        assert links.reset(("clients", "broker-1"), ("broker-1", "clients")) == 1
        with pytest.raises(trio.BrokenResourceError) as caught:
            await read_frame(stream)
        assert isinstance(caught.value.__cause__, ConnectionResetError)
        assert await call(other, METADATA, 3, "broker-2-fetcher-0") == 3
        assert links.reset(("clients", "broker-1")) == 0
    assert not links.live


async def test_an_opaque_proxy_passes_bytes_that_can_be_cut_and_slowed_and_reset() -> None:
    links = Links(encrypted_clients=True)
    links.add(Rule(Action.HOLD, "Metadata"))  # it sees no message to hold
    async with proxied(links, opaque=True) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        # a frame that an other proxy would wait to see whole
        sent = request(METADATA, 7, "broker-2-fetcher-0")
        await stream.send_all(sent[:3])
        await stream.send_all(sent[3:])
        assert (await read_frame(stream))[4:8] == struct.pack(">i", 7)
        assert links.connections["clients", "broker-1"] == 1
        links.cut("clients", "broker-1")
        await stream.send_all(sent)
        with trio.move_on_after(0.2) as waited:
            await read_frame(stream)
        assert waited.cancelled_caught
        assert links.stopped["clients", "broker-1"] == 1
        links.heal()
        assert (await read_frame(stream))[4:8] == struct.pack(">i", 7)
        slowness = Slowness(latency_s=0.05)
        links.slow(slowness, ("broker-1", "clients"))
        began = trio.current_time()
        assert await call(stream, METADATA, 8, "x") == 8
        assert trio.current_time() - began >= 0.05
        assert links.reset(("clients", "broker-1")) == 1
        with pytest.raises(trio.BrokenResourceError):
            await read_frame(stream)


async def test_what_is_no_frame_goes_on_at_once() -> None:
    """TLS to a plain listener: the broker closes, and the client is not left in silence."""
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(100)
    target, port = free_ports(2)
    seen: list[bytes] = []

    async def close_it(stream: trio.SocketStream) -> None:
        seen.append(bytes(await stream.receive_some(65536)))
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: trio.serve_tcp(
            close_it, target, host="127.0.0.1", task_status=task_status))  # fmt: skip
        await nursery.start(Proxy(Links(), target, owner="broker-1").serve, port)
        with trio.fail_after(5):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(hello)
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some(1) == b""
        nursery.cancel_scope.cancel()
    assert seen == [hello]
