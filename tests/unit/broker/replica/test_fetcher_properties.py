"""A follower's requests to its leader, and the time that it waits for the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import unpack
from typing import Any

import pytest
import trio

from highwater.broker.replica.fetcher import ReplicaFetcher
from highwater.kafka.client.connection import ClientConnection, RequestTimedOut
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import decode_request
from highwater.kafka.wire.header import parse_request_header
from tests.unit.broker.replica.test_fetcher import LEADER, hosted, replica_manager


@asynccontextmanager
async def fetcher_of(
    folder: Path, **config: int
) -> AsyncIterator[tuple[ReplicaFetcher, ClientConnection, trio.MemoryReceiveChannel[Any]]]:
    """A fetcher with a leader that answers nothing; the channel has its requests."""
    manager = await replica_manager(folder)
    manager.config.change(config)
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    fetcher.add(hosted(manager, TopicPartition("t", 0)), ("nowhere", 1))
    tell, asked = trio.open_memory_channel[Any](1)

    async def serve(stream: trio.SocketStream) -> None:
        data = b""
        async for more in stream:
            data += more
            if len(data) >= 4 and len(data) == 4 + unpack(">i", data[:4])[0]:
                key, version, _, _, at = parse_request_header(data[4:])
                await tell.send(decode_request(key, version, data[4 + at :]))
                data = b""

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(lambda task_status: trio.serve_tcp(
            serve, 0, host="127.0.0.1", task_status=task_status,
        ))  # fmt: skip
        port = listener.socket.getsockname()[1]
        connection = await ClientConnection.open(manager.world.network, "127.0.0.1", port, None)
        yield fetcher, connection, asked
        connection.close()
        nursery.cancel_scope.cancel()


async def test_a_follower_asks_for_what_its_properties_say(tmp_path: Path) -> None:
    config = {
        "replica_fetch_wait_max_ms": 71,
        "replica_fetch_min_bytes": 72,
        "replica_fetch_max_bytes": 73,
        "replica_fetch_response_max_bytes": 74,
    }
    async with fetcher_of(tmp_path, **config) as (fetcher, connection, asked):
        async with trio.open_nursery() as nursery:
            fetcher._look_around()
            nursery.start_soon(fetcher._fetch, connection)
            with trio.fail_after(10):
                request = await asked.receive()
            nursery.cancel_scope.cancel()
        (partition,) = request.topics[0].partitions
        found = request.max_wait_ms, request.min_bytes, partition.partition_max_bytes
        assert (*found, request.max_bytes) == tuple(config.values())


async def test_a_follower_waits_so_long_for_an_answer(tmp_path: Path) -> None:
    async with fetcher_of(tmp_path, replica_socket_timeout_ms=50) as (fetcher, connection, _):
        with trio.fail_after(10), pytest.raises(RequestTimedOut):
            await fetcher._fetch(connection)
