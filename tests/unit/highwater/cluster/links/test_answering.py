"""A proxy on real sockets that answers requests itself, before a stand-in broker that answers when
it is told to."""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from highwater.cluster.links.link_rules import Action, Links, Message, Rule, Side
from highwater.cluster.links.observer import Observer
from highwater.cluster.links.proxy import Proxy
from highwater.cluster.links.rewriting import Replace
from highwater.cluster.ports import free_ports
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire import codec, messages
from highwater.kafka.wire.header import RequestHeader, request_header, response_header

PRODUCE, HEARTBEAT = 0, 12
VERSION = 7
ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce(
    number: int, *partitions: int, acks: int = -1, client: str = "app", size: int = 9,
    version: int = VERSION, topic: str = "orders",
) -> bytes:  # fmt: skip
    cls = messages.ProduceRequest
    data = [cls.TopicProduceData.PartitionProduceData(index=n, records=b"r" * size)
            for n in partitions or (0,)]  # fmt: skip
    topics = [cls.TopicProduceData(name=topic, partition_data=data)]
    body = codec.encode_request(cls(acks=acks, topic_data=topics), VERSION)
    return frame(request_header(PRODUCE, version, number, client) + bytes(body))


def heartbeat(number: int) -> bytes:
    body = codec.encode_request(messages.HeartbeatRequest(), 3)
    return frame(request_header(HEARTBEAT, 3, number, "app") + bytes(body))


@dataclass
class Broker:
    """Keeps what comes; answers a Produce request for partitions 0 and 1 when it is told to."""

    came: list[int] = field(default_factory=list)
    stream: trio.SocketStream | None = None

    async def serve(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        try:
            while True:
                got = await read_frame(stream)
                self.came.append(struct.unpack(">i", got[8:12])[0])
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def answer(self, number: int) -> None:
        assert self.stream is not None
        cls = messages.ProduceResponse
        parts = [cls.TopicProduceResponse.PartitionProduceResponse(index=n, base_offset=5)
                 for n in (0, 1)]  # fmt: skip
        made = cls(responses=[cls.TopicProduceResponse(name="orders", partition_responses=parts)])
        body = bytes(codec.encode_response(made, VERSION))
        await self.stream.send_all(frame(response_header(PRODUCE, VERSION, number) + body))

    async def has(self, *numbers: int) -> None:
        with trio.fail_after(5):
            while self.came != [*numbers]:
                await wait_all_tasks_blocked(0.005)


async def read_frame(stream: trio.SocketStream) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        got = await stream.receive_some(
            1 if len(data) < 4 else 4 + struct.unpack(">i", data[:4])[0] - len(data)
        )
        if not got:
            raise trio.BrokenResourceError("end of stream")
        data += bytes(got)
    return data


async def told(stream: trio.SocketStream) -> tuple[int, list[int]]:
    """Correlation id and errors of the next answer to a Produce request."""
    with trio.fail_after(5):
        got = await read_frame(stream)
    answer = codec.decode_response(PRODUCE, VERSION, memoryview(got)[8:])
    (number,) = struct.unpack(">i", got[4:8])
    return number, [p.error_code for t in answer.responses for p in t.partition_responses]


async def nothing_comes(stream: trio.SocketStream) -> None:
    with trio.move_on_after(0.1) as scope:
        await read_frame(stream)
    assert scope.cancelled_caught


@asynccontextmanager
async def proxied(
    links: Links, observer: Observer | None = None, replace: Replace | None = None
) -> AsyncIterator[tuple[trio.SocketStream, Broker]]:
    target, port = free_ports(2)
    broker = Broker()
    proxy = Proxy(links, target, owner="broker-1", observer=observer, replace=replace)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: trio.serve_tcp(
            broker.serve, target, host="127.0.0.1", task_status=task_status))  # fmt: skip
        await nursery.start(proxy.serve, port)
        yield await trio.open_tcp_stream("127.0.0.1", port), broker
        nursery.cancel_scope.cancel()


def ruled(**how: Any) -> tuple[Links, Rule]:
    links = Links()
    return links, links.add(Rule(Action.ANSWER, "Produce", **{"error": ERROR, **how}))


async def test_an_answer_of_the_proxys_own_keeps_its_place_among_three_in_flight() -> None:
    links, rule = ruled(client="second")
    async with proxied(links) as (client, broker):
        await client.send_all(produce(1) + produce(2, 0, 1, client="second") + produce(3))
        await broker.has(1, 3)
        assert (rule.matched, rule.answered) == (1, {"second": 1})
        await nothing_comes(client)
        await broker.answer(1)
        assert await told(client) == (1, [0, 0])
        assert await told(client) == (2, [ERROR, ERROR])
        await nothing_comes(client)
        await broker.answer(3)
        assert await told(client) == (3, [0, 0])


async def test_it_goes_at_once_where_nothing_is_before_it() -> None:
    links, rule = ruled(limit=2)
    async with proxied(links) as (client, broker):
        await client.send_all(produce(1) + produce(2) + produce(3))
        assert await told(client) == (1, [ERROR])
        assert await told(client) == (2, [ERROR])
        await broker.has(3)
        await broker.answer(3)
        assert await told(client) == (3, [0, 0])
    assert rule.matched == 2


async def test_it_waits_behind_an_answer_that_is_held_and_behind_none_that_was_dropped() -> None:
    links, _ = ruled(client="second", limit=0)
    drop = links.add(Rule(Action.DROP, "Heartbeat"))
    hold = links.add(Rule(Action.HOLD, "Produce", Side.RESPONSE))
    async with proxied(links) as (client, broker):
        await client.send_all(heartbeat(1) + produce(2, client="second"))
        assert await told(client) == (2, [ERROR])
        assert drop.matched == 1
        await client.send_all(produce(3))
        await broker.has(3)
        await broker.answer(3)
        with trio.fail_after(5):
            while not hold.matched:
                await wait_all_tasks_blocked(0.005)
        await client.send_all(produce(4, client="second"))
        await nothing_comes(client)
        links.release(hold)
        assert await told(client) == (3, [0, 0])
        assert await told(client) == (4, [ERROR])


async def test_it_does_not_break_into_an_answer_that_is_on_its_way() -> None:
    links, rule = ruled(client="second")
    async with proxied(links) as (client, broker):
        await client.send_all(heartbeat(1))
        await broker.has(1)
        assert broker.stream is not None
        whole = frame(struct.pack(">i", 1) + b"x" * 200_000)
        await broker.stream.send_all(whole[:100_000])
        got = b""
        with trio.fail_after(5):
            while len(got) < 100_000:
                got += await client.receive_some()
            await client.send_all(produce(2, client="second"))
            while not rule.matched:
                await wait_all_tasks_blocked(0.005)
            await broker.stream.send_all(whole[100_000:])
            while len(got) < len(whole):
                got += await client.receive_some(len(whole) - len(got))
        assert got == whole
        assert await told(client) == (2, [ERROR])


async def test_a_producer_that_wants_no_answer_loses_its_connection() -> None:
    links, rule = ruled()
    async with proxied(links) as (client, broker):
        await client.send_all(heartbeat(1))
        await broker.has(1)
        await client.send_all(produce(2, acks=0))
        with trio.fail_after(5):
            assert await client.receive_some(1) == b""
        assert broker.came == [1]
    assert (rule.matched, rule.closed, rule.answered) == (1, 1, {"app": 1})


async def test_only_a_request_whose_partitions_are_all_chosen_is_answered() -> None:
    links, rule = ruled(topic="orders", partition=1, limit=0)
    async with proxied(links) as (client, broker):
        await client.send_all(
            produce(1, 0, 1) + produce(2, 1, topic="bills") + produce(3, 0) + produce(4, 1)
        )
        await broker.has(1, 2, 3)
        for number in (1, 2, 3):
            await broker.answer(number)
            assert await told(client) == (number, [0, 0])
        assert await told(client) == (4, [ERROR])
    assert (rule.matched, rule.could, rule.unread) == (1, 1, 0)


async def test_the_error_is_put_into_the_brokers_answer() -> None:
    links, rule = ruled(side=Side.RESPONSE, partition=1, client="app")
    async with proxied(links) as (client, broker):
        await client.send_all(produce(1, client="other") + produce(2) + produce(3))
        await broker.has(1, 2, 3)
        for number, expected in ((1, [0, 0]), (2, [0, ERROR]), (3, [0, 0])):
            await broker.answer(number)
            assert await told(client) == (number, expected)
    assert (rule.matched, rule.answered) == (1, {"app": 1})


@pytest.mark.parametrize("size", [100_000, 17 << 20], ids=["100 kB", "17 MiB"])
async def test_a_request_is_answered_up_to_a_size_and_goes_on_whole_beyond_it(size: int) -> None:
    links, rule = ruled(limit=1)
    async with proxied(links) as (client, broker):
        await client.send_all(produce(1, size=size) + produce(2))
        if size == 100_000:
            assert await told(client) == (1, [ERROR])
            await broker.has(2)
        else:
            await broker.has(1)
            await nothing_comes(client)
    assert rule.unread == (size > 100_000)


async def test_a_version_that_is_not_known_goes_on_and_is_counted() -> None:
    links, rule = ruled()
    async with proxied(links) as (client, broker):
        await client.send_all(produce(1, version=99))
        await broker.has(1)
    assert (rule.matched, rule.unread) == (0, 1)


class Watching:
    """An observer that keeps the errors that a client was told."""

    def __init__(self) -> None:
        self.asked_for: list[int] = []
        self.told: list[int] = []

    def begun(self, connection: int, owner: str, first: bytes) -> None: ...

    def unreachable(self, connection: int, owner: str, why: str) -> None: ...

    def asked(
        self, connection: int, header: RequestHeader, body: memoryview, *, whole: bool
    ) -> None:
        self.asked_for.append(header.correlation_id)

    def answered(
        self, connection: int, api_key: int, version: int, body: memoryview, *, whole: bool
    ) -> None:
        answer = codec.decode_response(api_key, version, body)
        self.told += [p.error_code for t in answer.responses for p in t.partition_responses]

    def hung_up(self, connection: int) -> None: ...

    def ended(self, connection: int) -> None: ...


async def test_an_observer_of_a_door_sees_what_the_client_sees() -> None:
    """A door replaces addresses, and is observed; see `highwater.chaos.aimed.doors`."""
    links, _ = ruled(client="second")
    links.add(Rule(Action.ANSWER, "Produce", Side.RESPONSE, error=ErrorCode.REQUEST_TIMED_OUT))
    watching = Watching()
    async with proxied(links, watching, lambda number, own: own) as (client, broker):
        await client.send_all(produce(1) + produce(2, client="second"))
        await broker.has(1)
        await broker.answer(1)
        assert await told(client) == (1, [ErrorCode.REQUEST_TIMED_OUT] * 2)
        assert await told(client) == (2, [ERROR])
    assert (watching.asked_for, watching.told) == ([1, 2], [7, 7, 6])


def turns(rule: Rule) -> Iterator[bool]:
    while True:
        yield rule.is_due()


def test_each_nth_message_and_those_by_chance() -> None:
    third = turns(Rule(Action.ANSWER, "Produce", every=3))
    assert [next(third) for _ in range(7)] == [False, False, True, False, False, True, False]
    a, b = (Rule(Action.ANSWER, "Produce", probability=0.3, rng=random.Random(5)) for _ in "ab")
    by_a, by_b = ([turn.is_due() for _ in range(200)] for turn in (a, b))
    assert by_a == by_b
    assert 30 < a.matched < 90


def test_an_answering_rule_neither_holds_nor_drops() -> None:
    links, rule = ruled()
    message = Message("clients", "broker-1", Side.REQUEST, "Produce", (), "app")
    assert links.answering(message) == [rule]
    assert links.rule_for(message) is None
    assert links.answering(Message("clients", "broker-1", Side.REQUEST, "Fetch")) == []
