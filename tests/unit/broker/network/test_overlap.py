"""Requests of one connection that wait for replication at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
import trio

from highwater.broker.context import Context, Delayed
from highwater.broker.network.connection import PIPELINE
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.world.api import Buffer
from highwater.world.real.network import RealConnection

from .conftest import Net, entry, serving


class Replicated(DelayedOperation):
    """Stands for an acks=all Produce: done except for its replicas."""

    kind: ClassVar[str] = "Produce"
    overlaps: ClassVar[bool] = True

    def __init__(self, body: bytes) -> None:
        self.keys = [body]
        self.timeout_ms = 60_000
        self.body = body
        self.ready = False

    def try_complete(self) -> Response | None:
        return Response(parts=[self.body]) if self.ready else None

    def on_expire(self) -> Response:
        raise AssertionError("it should have been answered")


async def test_requests_behind_a_replicating_one_are_handled_and_answered_in_order(
    network: Net,
) -> None:
    begun: list[Replicated] = []

    def handle(ctx: Context, body: memoryview) -> Response | Delayed:
        if bytes(body) == b"now":
            return Response(parts=[b"now"])
        begun.append(Replicated(bytes(body)))
        return Delayed(begun[-1])

    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        for i, body in enumerate((b"a", b"b", b"now", b"c")):
            await client.send(body, id_=i)
        while len(begun) < 2:
            await trio.lowlevel.checkpoint()
        for operation in reversed(begun):
            operation.ready = True
            s.services.purgatories.check("Produce", operation.keys)
        for i, body in enumerate((b"a", b"b", b"now")):
            assert await client.receive() == (i, body)
        while len(begun) < 3:
            await trio.lowlevel.checkpoint()
        begun[2].ready = True
        s.services.purgatories.check("Produce", begun[2].keys)
        assert await client.receive() == (3, b"c")


async def test_what_one_news_answers_leaves_each_connection_at_once(
    network: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Replicated] = []
    sent: list[int] = []

    def handle(ctx: Context, body: memoryview) -> Delayed:
        begun.append(Replicated(bytes(body)))
        return Delayed(begun[-1])

    def counting(self: RealConnection, views: Sequence[Buffer], more: bool = False) -> int | None:
        sent.append(len(views))
        return send(self, views, more)

    send = RealConnection.send
    async with serving(network, entry(handle)) as s:
        clients = [await s.connect(), await s.connect()]
        for i in range(3):
            for client in clients:
                await client.send(b"key", id_=i)
        while len(begun) < 6:
            await trio.lowlevel.checkpoint()
        for operation in begun:
            operation.ready = True
        monkeypatch.setattr(RealConnection, "send", counting)
        s.services.completions.add("Produce", [b"key"])
        for client in clients:
            assert [await client.receive() for _ in range(3)] == [(i, b"key") for i in range(3)]
    assert len(sent) == 2


async def test_no_more_than_the_pipeline_overlaps(network: Net) -> None:
    begun: list[Replicated] = []

    def handle(ctx: Context, body: memoryview) -> Delayed:
        begun.append(Replicated(bytes(body)))
        return Delayed(begun[-1])

    async with serving(network, entry(handle)) as s:
        client = await s.connect()
        for i in range(PIPELINE + 3):
            await client.send(b"%d" % i, id_=i)
        while len(begun) < PIPELINE:
            await trio.lowlevel.checkpoint()
        other = await s.connect()
        await other.send(b"other")
        while begun[-1].body != b"other":
            await trio.lowlevel.checkpoint()
        assert len(begun) == PIPELINE + 1, "the rest waits in the socket"
        for _ in range(2):
            for operation in begun:
                operation.ready = True
                s.services.purgatories.check("Produce", operation.keys)
            for _ in range(100):
                await trio.lowlevel.checkpoint()
        while len(begun) < PIPELINE + 4:
            await trio.lowlevel.checkpoint()
        for operation in begun:
            operation.ready = True
            s.services.purgatories.check("Produce", operation.keys)
        for i in range(PIPELINE + 3):
            assert await client.receive() == (i, b"%d" % i)
