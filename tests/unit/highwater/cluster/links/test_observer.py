"""The side that is named as the one that ended a connection: the member, or another."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
import trio

from highwater.cluster.links.link_rules import Links
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.ports import free_ports
from highwater.kafka.wire.header import RequestHeader, request_header

Broker = Callable[[trio.SocketStream], Awaitable[None]]


class Recorder:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.was_asked, self.over = trio.Event(), trio.Event()

    def begun(self, connection: int, owner: str, first: bytes) -> None:
        self.told.append("begun")

    def unreachable(self, connection: int, owner: str, why: str) -> None:
        self.told.append("unreachable")

    def asked(
        self, connection: int, header: RequestHeader, body: memoryview, *, whole: bool
    ) -> None:
        self.told.append("asked")
        self.was_asked.set()

    def answered(
        self, connection: int, api_key: int, version: int, body: memoryview, *, whole: bool
    ) -> None:
        self.told.append("answered")

    def hung_up(self, connection: int) -> None:
        self.told.append("hung up")

    def ended(self, connection: int) -> None:
        self.told.append("ended")
        self.over.set()


async def closes(stream: trio.SocketStream) -> None:
    await stream.receive_some(1000)
    await stream.aclose()


async def resets(stream: trio.SocketStream) -> None:
    await stream.receive_some(1000)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


async def says_nothing(stream: trio.SocketStream) -> None:
    while await stream.receive_some(1000):
        pass


async def asked_of(broker: Broker, *, client_leaves: bool = False) -> list[str]:
    """An observer's news of one request; the proxy is stopped unless somebody ends it."""
    recorder = Recorder()
    target, port = free_ports(2)
    proxy = Proxy(Links(), target, owner="broker-1", observer=recorder)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: trio.serve_tcp(
                broker, target, host="127.0.0.1", task_status=task_status))  # fmt: skip
            await nursery.start(proxy.serve, port)
            client = await trio.open_tcp_stream("127.0.0.1", port)
            body = request_header(3, 4, 1, "app") + b"body"
            await client.send_all(struct.pack(">i", len(body)) + body)
            await recorder.was_asked.wait()
            if client_leaves:
                await client.aclose()
            if client_leaves or broker is not says_nothing:
                await recorder.over.wait()
            nursery.cancel_scope.cancel()
    return recorder.told


@pytest.mark.parametrize("broker", [closes, resets])
async def test_the_member_that_closes_or_resets_is_told_of(broker: Broker) -> None:
    assert await asked_of(broker) == ["begun", "asked", "hung up", "ended"]


@pytest.mark.parametrize("client_leaves", [True, False], ids=["client left", "proxy stopped"])
async def test_the_member_is_not_blamed_for_others(client_leaves: bool) -> None:
    assert await asked_of(says_nothing, client_leaves=client_leaves) == ["begun", "asked", "ended"]
