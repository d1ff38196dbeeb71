"""What a well-behaved client notices of fuzzed requests, against valid ones at the same rate.

All are sent to one broker, in turns, by as many connections with the same login.  *Valid* are
requests of the same APIs, versions and sizes that can be decoded; *small* are five that clients
send all the time: they show how much of the p99 is due to what is asked, and not to damage.

usage: python -m tests.long.fuzz_beside COUNT
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import trio

from highwater.kafka.wire.codec import decode_request
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.messages import (
    ApiVersionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from tests.fuzzing.requests import body_of
from tests.integration.robustness.rig import Address, ZooKeeper, frame_of
from tests.long.beside import Beside
from tests.long.fuzz import (
    APIS,
    AT_ONCE,
    PART,
    PATIENCE_S,
    PER_CONNECTION,
    TOPIC,
    answer,
    fuzzed_broker,
    logged_in,
    storm,
)

ROUNDS = 3
MOST_TIMES = 2.0
FLOOR_MS = 5.0
"""Below that a ratio tells of the machine."""


def valid(chance: Random) -> bytes:
    """A request by the fuzzer's rules, as often as it takes until it can be decoded."""
    while True:
        key, version = chance.choice(APIS)
        body = body_of(chance, key, version)
        try:
            decode_request(key, version, memoryview(body))
        except ValueError:
            continue
        frame = request_header(key, version, 1, "valid") + body
        return struct.pack(">i", len(frame)) + frame


def small(chance: Random) -> bytes:
    """A request as clients send them all the time."""
    fetched, listed = FetchRequest.FetchTopic, ListOffsetsRequest.ListOffsetsTopic
    part = fetched.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=4096)
    asked = listed.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request, version = chance.choice(
        [
            (ApiVersionsRequest(), 0),
            (MetadataRequest(topics=None), 1),
            (FindCoordinatorRequest(key="some"), 0),
            (
                FetchRequest(
                    replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=4096,
                    topics=[fetched(topic="fuzzed", partitions=[part])],
                ),
                4,
            ),
            (
                ListOffsetsRequest(
                    replica_id=-1, topics=[listed(name="fuzzed", partitions=[asked])]
                ),
                1,
            ),
        ]
    )  # fmt: skip
    return frame_of(request, version)


async def _paced(address: Address, count: int, rate: float, make: Callable[[Random], bytes]) -> int:
    """That many requests, so many a second, over as many connections as a storm has; returns how
    many of them were answered."""
    numbers, begun = iter(range(count)), trio.current_time()
    answered = 0

    async def connection(first: int) -> None:
        nonlocal answered
        chance = Random(f"paced {first}")
        async with await trio.open_tcp_stream(*address) as stream:
            try:
                await logged_in(stream)
                number: int | None = first
                for _ in range(PER_CONNECTION):
                    if number is None:
                        return
                    await trio.sleep_until(begun + number / rate)
                    await stream.send_all(make(chance))
                    with trio.move_on_after(PATIENCE_S) as waited:
                        if not await answer(stream):
                            return
                    if waited.cancelled_caught:
                        return
                    answered += 1
                    number = next(numbers, None)
            except trio.BrokenResourceError:
                pass

    async def worker() -> None:
        for number in numbers:
            await connection(number)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(worker)
    return answered


def compare(folder: Path, zookeeper: ZooKeeper, count: int) -> str:
    """The client's p99 beside each, in a sentence."""
    broker, address = fuzzed_broker(folder, zookeeper)
    beside = Beside(broker.address, TOPIC, 50)
    p99: dict[str, list[float]] = {"fuzzed": [], "valid": [], "small": []}
    rate, first = 0.0, 0
    try:
        for _ in range(ROUNDS):
            beside.interval()
            begun, sent = time.monotonic(), [0]
            while sent[0] < count:
                trio.run(storm, address, first, PART, True, sent)
                first += PART
            rate = sent[0] / (time.monotonic() - begun)
            p99["fuzzed"].append(beside.interval()["p99"])
            for name, make in (("valid", valid), ("small", small)):
                answered = trio.run(_paced, address, sent[0], rate, make)
                assert answered > sent[0] / 2, f"{answered} of {sent[0]} {name} requests answered"
                p99[name].append(beside.interval()["p99"])
        kept = beside.end()
        assert kept["missing"] == 0, kept
        assert broker.stop() == 0, broker.output[-3000:]
    finally:
        beside.kill()
        broker.end()
    of = {name: median(found) for name, found in p99.items()}
    told = (
        f"p99 of a well-behaved client: {of['fuzzed']:.1f} ms beside {rate:.0f} fuzzed requests a "
        f"second, {of['valid']:.1f} ms beside as many valid ones of the same APIs, "
        f"{of['small']:.1f} ms beside small ones (medians of {ROUNDS})"
    )
    assert of["fuzzed"] <= MOST_TIMES * max(of["valid"], FLOOR_MS), told
    return told


def main(count: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        zookeeper = ZooKeeper(Path(name) / "zookeeper")
        try:
            print(compare(Path(name) / "beside", zookeeper, int(count)))
        finally:
            zookeeper.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
