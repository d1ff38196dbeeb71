"""Large frames: read in place, in pieces, beside small ones, and into buffers that are reused."""

from __future__ import annotations

import random
from struct import pack

import pytest
import trio

from highwater.broker.context import Context
from highwater.broker.network.connection import SCRATCH_BYTES
from highwater.broker.request.response import Response
from highwater.world.real.network import RealNetwork

from .conftest import PlainNetwork, entry, serving

Net = RealNetwork | PlainNetwork


def framed(number: int, body: bytes) -> bytes:
    return pack(">ihhihs", 11 + len(body), 1, 4, number, 1, b"c") + body


@pytest.mark.parametrize("seed", range(6))
async def test_any_sizes_in_any_pieces_come_back(network: Net, seed: int) -> None:
    chance = random.Random(seed)
    kept: list[memoryview] = []

    def echo(ctx: Context, body: memoryview) -> Response:
        if len(body) % 3 == 0:
            kept.append(body)  # such a buffer must not serve another request
        return Response(parts=[bytes(body)])

    sizes = [0, 3, SCRATCH_BYTES - 15, SCRATCH_BYTES - 14, 90_000, 131_000, 400_001]
    bodies = [chance.randbytes(chance.choice(sizes) + chance.randrange(50)) for _ in range(60)]
    stream = b"".join(framed(n, body) for n, body in enumerate(bodies))

    async with serving(network, entry(echo)) as s:
        client = await s.connect()

        async def send() -> None:
            at = 0
            while at < len(stream):
                step = chance.choice([1, 3, 4, 1000, 65_536, 131_015, 500_000])
                await client.stream.send_all(stream[at : at + step])
                at += step

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            for number, body in enumerate(bodies):
                assert await client.receive() == (number, body)
    assert [bytes(view) for view in kept] == [body for body in bodies if len(body) % 3 == 0]


async def test_a_small_frame_after_a_large_one_holds_no_buffer(network: Net) -> None:
    def echo(ctx: Context, body: memoryview) -> Response:
        return Response(parts=[bytes(body)])

    async with serving(network, entry(echo)) as s:
        client = await s.connect()
        for body in (bytes(200_000), b"small", bytes(100), bytes(300_000), b""):
            assert await client.call(body) == body
