"""queued.max.request.bytes counts a request from its first bytes until its API lets go of it."""

from __future__ import annotations

from struct import pack

import pytest
import trio

from highwater.broker.context import Context, Delayed, Plane, Reply
from highwater.broker.network.connection import SCRATCH_BYTES
from highwater.broker.network.request_channel import RequestChannel
from highwater.broker.request.response import Response
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.messages import HeartbeatRequest, HeartbeatResponse

from .conftest import Client, Net, PlainNetwork, Serving, entry, serving
from .test_request_times import Overlapping

LARGE = 400_000
BOUND = 1_000_000


def channel_of(s: Serving) -> RequestChannel:
    return s.server.planes[Plane.DATA].channel


async def until(condition: object, s: Serving) -> None:
    """Polls; the test's own time-out shows the state."""
    assert callable(condition)
    try:
        while not condition():
            await trio.sleep(0.001)
    except trio.Cancelled:
        channel = channel_of(s)
        print(f"in flight {channel.bytes_in_flight}, stalled {channel.stalled}, {len(channel)}")
        raise


def frame(size: int) -> bytes:
    body = request_header(1, 4, 7, "test")
    return pack(">i", size) + body + b"x" * (size - len(body))


async def ok(ctx: Context, body: memoryview) -> Reply:
    await trio.lowlevel.checkpoint()
    return Response(parts=[b"ok"])


async def answered(client: Client) -> None:
    assert await client.receive() == (7, b"ok")


async def test_a_request_counts_from_its_first_bytes_and_a_full_pool_stops_reading(
    network: Net,
) -> None:
    async with serving(network, entry(ok), queued_max_request_bytes=BOUND) as s:
        channel = channel_of(s)
        halves = [await s.connect() for _ in range(3)]
        for client in halves:
            await client.stream.send_all(frame(LARGE)[: SCRATCH_BYTES + 1000])
        await until(lambda: channel.bytes_in_flight == 3 * LARGE, s)  # one more than there is room
        other = await s.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.stream.send_all, frame(LARGE))
            await until(lambda: channel.stalled == 1, s)
            assert channel.bytes_in_flight == 3 * LARGE
            for client in halves:  # a request that was let in is read on, though the pool is empty
                await client.stream.send_all(frame(LARGE)[SCRATCH_BYTES + 1000 :])
                await answered(client)
            await answered(other)
        assert channel.bytes_in_flight == channel.stalled == 0


async def test_a_client_that_leaves_in_the_midst_gives_its_memory_back(network: Net) -> None:
    async with serving(network, entry(ok), queued_max_request_bytes=BOUND) as s:
        channel = channel_of(s)
        gone, stays = await s.connect(), await s.connect()
        await gone.stream.send_all(frame(BOUND + 5)[:100_000])
        await until(lambda: channel.bytes_in_flight == BOUND + 5, s)
        await stays.stream.send_all(frame(100))
        await until(lambda: channel.stalled == 1, s)
        await gone.stream.aclose()
        await answered(stays)
        assert channel.bytes_in_flight == 0


async def test_a_full_queue_stops_even_what_has_its_memory(network: Net) -> None:
    gate = trio.Event()

    async def waits(ctx: Context, body: memoryview) -> Reply:
        await gate.wait()
        return Response(parts=[b"ok"])

    config = {"queued_max_requests": 1, "num_io_threads": 1, "queued_max_request_bytes": BOUND}
    async with serving(network, entry(waits), **config) as s:
        channel = channel_of(s)
        large, *small = [await s.connect() for _ in range(3)]
        await large.stream.send_all(frame(LARGE)[:100_000])
        await until(lambda: channel.bytes_in_flight == LARGE, s)
        for client in small:
            await client.stream.send_all(frame(100))
        await until(lambda: len(channel) == 1, s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(large.stream.send_all, frame(LARGE)[100_000:])
            await until(lambda: channel.stalled == 1, s)
            gate.set()
            for client in (large, *small):
                await answered(client)
        assert channel.bytes_in_flight == channel.stalled == 0


async def test_what_an_api_does_not_need_is_given_back_before_it_answers(network: Net) -> None:
    gate, seen = trio.Event(), []

    async def decoded(ctx: Context, request: object) -> Reply:
        seen.append(channel_of(s).bytes_in_flight)
        await gate.wait()
        return Response(HeartbeatResponse(error_code=0))

    def raw(ctx: Context, body: memoryview) -> Reply:
        seen.append(channel_of(s).bytes_in_flight)
        return Delayed(Overlapping(200))

    beat = HeartbeatRequest(group_id="g" * 1000, generation_id=1, member_id="m")
    handlers = entry(decoded, key=12, raw=False), entry(raw, key=0)
    async with serving(network, *handlers, queued_max_request_bytes=BOUND) as s:
        first, second = await s.connect(), await s.connect()
        await first.send(bytes(encode_request(beat, 3)), key=12, version=3)
        await until(lambda: len(seen) == 1, s)
        assert seen == [0], "decoded: its buffer is not needed while it waits"
        await second.send(b"p" * 5000, key=0, version=3)
        await until(lambda: len(seen) == 2, s)
        assert seen[1] > 5000, "a Produce keeps it until it is appended"
        await until(lambda: channel_of(s).bytes_in_flight == 0, s)  # it waits for its replicas
        gate.set()
        await first.receive()
        await second.receive()


@pytest.mark.parametrize("pollers", [PlainNetwork])
async def test_the_bound_can_be_raised_while_clients_wait(pollers: type[PlainNetwork]) -> None:
    async with serving(pollers(), entry(ok), queued_max_request_bytes=LARGE) as s:
        channel = channel_of(s)
        half, other = await s.connect(), await s.connect()
        await half.stream.send_all(frame(LARGE)[:100_000])
        await until(lambda: channel.bytes_in_flight == LARGE, s)
        await other.stream.send_all(frame(100))
        await until(lambda: channel.stalled == 1, s)
        s.server.config.change({"queued_max_request_bytes": 2 * LARGE})
        s.server.reconfigure()
        await answered(other)
