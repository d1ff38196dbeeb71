"""A trace never disturbs the requests that it watches."""

from __future__ import annotations

from typing import Any, cast

import trio

from highwater.broker.network.tracing import Traced, Tracer, trace


class Server:
    """What a trace asks of a socket server while no request comes."""

    def __init__(self) -> None:
        self.tracers: dict[Tracer, None] = {}

    def perf_ns(self) -> int:
        return 0

    def trace_changed(self) -> None:
        pass


async def test_a_tracer_whose_listener_has_gone_can_still_be_told() -> None:
    server = Server()
    async with trace(cast("Traced", server), "connections") as lines:
        (tracer,) = server.tracers
        tracer.tell("opened")
        await anext(lines)
        await cast("Any", lines).aclose()  # as when the HTTP client hangs up
        tracer.tell("closed")
    assert not server.tracers


async def test_a_listener_that_does_not_listen_loses_lines() -> None:
    server = Server()
    async with trace(cast("Traced", server), "connections") as lines:
        (tracer,) = server.tracers
        for _ in range(1002):
            tracer.tell("opened")
        tracer._end()
        tracer.tell("closed")
        with trio.fail_after(5):
            assert len([line async for line in lines]) == 1000
