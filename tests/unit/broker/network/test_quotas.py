"""Quotas on the request path: a client that takes too much is answered at once, told its throttle
time, and muted."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import pytest
import trio

from highwater.broker.context import Context
from highwater.broker.quota.entities import Entity
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.messages import HeartbeatRequest, HeartbeatResponse
from highwater.kafka.wire.produce import PartitionResult, produce_response
from highwater.world.real.network import RealNetwork

from .conftest import entry, serving

EVERYBODY = Entity(None, "test")


def produced(ctx: Context, body: memoryview) -> Response:
    return Response(parts=[produce_response([PartitionResult(TopicPartition("t", 0))], 8)])


@pytest.mark.thorough
async def test_a_producer_above_its_byte_rate_is_muted_for_what_it_is_told() -> None:
    async with serving(RealNetwork(), entry(produced, key=0), quota_window_num=2) as s:
        s.services.quotas.configured(EVERYBODY, {"producer_byte_rate": "10000"})
        client = await s.connect()
        answer = decode_response(0, 8, await client.call(b"x" * 9000, key=0, version=8))
        assert answer.throttle_time_ms == 0
        answer = decode_response(0, 8, await client.call(b"x" * 8000, key=0, version=8))
        assert 100 < answer.throttle_time_ms < 800
        began = trio.current_time()
        await client.call(b"", key=0, version=8)
        assert trio.current_time() - began >= answer.throttle_time_ms / 1000 - 0.02
        api = s.services.metrics.requests["Produce"]
        assert api.throttle.sum_ns >= answer.throttle_time_ms * 1_000_000
        assert api.total.sum_ns < api.throttle.sum_ns, "recorded apart"


@pytest.mark.thorough
async def test_acks_0_is_muted_too() -> None:
    quiet = entry(lambda ctx, body: NoResponse(), key=0)
    async with serving(RealNetwork(), quiet, entry(produced, key=9), quota_window_num=2) as s:
        s.services.quotas.configured(EVERYBODY, {"producer_byte_rate": "10000"})
        client = await s.connect()
        began = trio.current_time()
        await client.send(b"x" * 17_000, key=0, version=8)
        await client.call(b"", key=9)
        assert trio.current_time() - began > 0.15


async def test_a_client_that_takes_too_much_time_is_muted_and_others_are_not() -> None:
    def busy(ctx: Context, request: Any) -> Response:
        until = perf_counter_ns() + 20_000_000 if request.group_id == "g" else 0
        while perf_counter_ns() < until:
            pass
        return Response(HeartbeatResponse(error_code=0))

    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    async with serving(RealNetwork(), entry(busy, key=12, raw=False), quota_window_num=2) as s:
        s.services.quotas.configured(EVERYBODY, {"request_percentage": "1"})
        body = bytes(encode_request(request, 3))
        client = await s.connect()
        first = decode_response(12, 3, await client.call(body, key=12, version=3))
        assert first.throttle_time_ms == 1000, "20 ms of 10, and a window is the bound"
        assert s.services.metrics.requests["Heartbeat"].count == 1


@pytest.mark.parametrize("key", [4, 27])
async def test_brokers_are_exempt(key: int) -> None:
    async with serving(
        RealNetwork(), entry(lambda ctx, body: Response(parts=[b"ok"]), key=key)
    ) as s:
        s.services.quotas.configured(EVERYBODY, {"request_percentage": "0.0001"})
        client = await s.connect()
        for _ in range(20):
            assert await client.call(b"", key=key, version=0) == b"ok"
        assert s.services.quotas.exempt_ns > 0


async def test_addresses_that_connect_too_fast_are_held_and_closed() -> None:
    async with serving(RealNetwork(), entry(produced, key=9), quota_window_num=2) as s:
        s.server.limits.limit_ip("<default>", 3)
        clients = [await s.connect() for _ in range(3)]
        for client in clients:
            await client.call(b"", key=9)
        began = trio.current_time()
        assert await (await s.connect()).closed()
        assert trio.current_time() - began > 0.1
        s.server.limits.limit_ip("127.0.0.1", 1000)  # its own wins over the default
        await (await s.connect()).call(b"", key=9)
        s.server.limits.limit_ip("127.0.0.1", None)
        s.server.limits.limit_ip("<default>", None)
        await (await s.connect()).call(b"", key=9)
