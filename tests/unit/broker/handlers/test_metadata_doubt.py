"""Metadata while a leader's connection has just broken, and in a broker that has just started: it
waits for news from the controller.
"""

from __future__ import annotations

from typing import Any

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.handlers import metadata
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo, Endpoint
from highwater.kafka.wire.messages import MetadataRequest
from tests.unit.broker.handlers.conftest import in_broker


def asked(*topics: str) -> Any:
    named = [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
    return MetadataRequest(topics=named or None, allow_auto_topic_creation=False)


def leader_in(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].leader_id)


async def both_wait(nursery: trio.Nursery, b: Any, answers: list[Any]) -> None:
    """Asks for t, and for all topics, and is not answered yet; `answers` grows when the answers
    come."""

    async def ask(*topics: str) -> None:
        answers.append(await b.ask(metadata, 12, asked(*topics)))

    nursery.start_soon(ask, "t")
    nursery.start_soon(ask)
    await trio.sleep(0.1)
    assert not answers


@in_broker()
async def test_the_answer_names_the_new_leader(b: Any) -> None:
    await b.update_metadata({"t": {0: 2}, "u": {0: 3}})
    b.services.metadata.doubt(2, monotonic_ms())
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        await both_wait(nursery, b, answers)
        assert leader_in(await b.ask(metadata, 12, asked("u"))) == 3, "no doubt of that"
        await b.update_metadata({"t": {0: 1}}, {1: None, 3: None})
    assert [leader_in(a) for a in answers] == [1, 1]


@in_broker()
async def test_half_a_second_at_most(b: Any) -> None:
    await b.update_metadata({"t": {0: 2}})
    b.services.metadata.doubt(2, monotonic_ms())
    began = trio.current_time()
    assert leader_in(await b.ask(metadata, 12, asked("t"))) == 2
    assert 0.4 < trio.current_time() - began < 0.6
    assert leader_in(await b.ask(metadata, 12, asked("t"))) == 2
    assert trio.current_time() - began < 0.6


@in_broker()
async def test_a_broker_that_has_come_back_is_doubted_anew(b: Any) -> None:
    async def wait_s() -> float:
        b.services.metadata.doubt(2, monotonic_ms())
        began = trio.current_time()
        assert leader_in(await b.ask(metadata, 12, asked("t"))) == 2
        return trio.current_time() - began

    await b.update_metadata({"t": {0: 2}})
    assert await wait_s() > 0.4
    assert await wait_s() < 0.1, "it never went"
    await b.update_metadata({"t": {0: 1}}, {1: None, 3: None})
    await b.update_metadata({"t": {0: 2}})
    assert await wait_s() > 0.4


@in_broker()
async def test_the_first_question_waits_for_the_controllers_first_word(b: Any) -> None:
    b.services.metadata = MetadataCache(BrokerId(1))
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        await both_wait(nursery, b, answers)
        await b.update_metadata({"t": {0: 2}})
    assert [leader_in(a) for a in answers] == [2, 2]


@in_broker()
async def test_without_a_controller_a_broker_names_itself(b: Any) -> None:
    """From an answer without brokers librdkafka concludes that none is left to ask, for ever."""

    endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", "here", 9092),)
    b.services.metadata = MetadataCache(BrokerId(1))
    b.services.metadata.local = BrokerInfo(BrokerId(1), BrokerEpoch(-1), endpoints)
    began = trio.current_time()
    answer = await b.ask(metadata, 12, asked("t"))
    assert 4.9 < trio.current_time() - began < 5.1
    assert [(n.node_id, n.host, n.port) for n in answer.brokers] == [(1, "here", 9092)]
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
