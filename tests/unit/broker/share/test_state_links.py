"""The persister's calls: their messages, and which are tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.broker.share.persister import SharePartitionKey, StateAnswer, StateBatch
from highwater.broker.share.state_links import StateLinks
from highwater.broker.share.state_messages import (
    KINDS,
    READ,
    WRITE,
    StateCall,
    answers_of,
    calls_of,
    request_of,
    response_of,
)
from highwater.kafka.config import Config
from highwater.kafka.errors import ErrorCode
from highwater.kafka.topic_names import SHARE_GROUP_STATE_TOPIC
from highwater.kafka.types import BrokerId, TopicPartition
from highwater.kafka.wire import codec

KEY = SharePartitionKey("g", bytes(range(1, 17)), 3)
OTHER = SharePartitionKey("g", bytes(range(2, 18)), 0)
BATCHES = (StateBatch(5, 9, 2, 1), StateBatch(12, 12, 0, 3))
FULL = StateAnswer(ErrorCode.NONE, None, 4, 5, 6, 7, BATCHES)
FAILED = StateAnswer(ErrorCode.FENCED_STATE_EPOCH, "why")


@pytest.mark.parametrize("kind", KINDS)
def test_calls_and_answers_there_and_back(kind: int) -> None:
    full = {name: 20 + i for i, name in enumerate(KINDS[kind].asks) if name != "batches"}
    if kind == WRITE:
        full["batches"] = BATCHES  # type: ignore[assignment]
    calls = [StateCall(kind, key, **full) for key in (KEY, OTHER)]  # type: ignore[arg-type]
    request, version = request_of(calls)
    body = codec.encode_request(request, version)
    assert calls_of(kind, codec.decode_request(kind, version, body)) == calls
    response = response_of(kind, [(KEY, FULL), (OTHER, FAILED)])
    body = codec.encode_response(response, version)
    found = answers_of(kind, "g", codec.decode_response(kind, version, body))
    assert set(found) == {KEY, OTHER}
    assert (found[OTHER].error, found[OTHER].message) == (FAILED.error, "why")
    for name in KINDS[kind].answers:
        assert getattr(found[KEY], name) == getattr(FULL, name)


class Coordinator:
    """Answers each call as the test says."""

    def __init__(self, answer: Callable[[StateCall], StateAnswer | None]) -> None:
        self.answer = answer
        self.calls: list[StateCall] = []

    def partition_of(self, name: str) -> TopicPartition:
        assert name in {f"{KEY}", f"{OTHER}"}
        return TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)

    def carry_out(self, call: StateCall, done: Callable[[StateAnswer], None]) -> None:
        self.calls.append(call)
        answer = self.answer(call)
        if answer is not None:
            done(answer)


def links(coordinator: Coordinator, leader: Callable[[], int] = lambda: 1) -> StateLinks:
    class Metadata(MetadataCache):
        def has_topic(self, topic: str) -> bool:
            return topic == SHARE_GROUP_STATE_TOPIC and leader() != -2

        def leader_of(self, tp: TopicPartition) -> BrokerId:
            return BrokerId(leader())

    made: list[float] = []

    async def create() -> None:
        made.append(trio.current_time())

    config = Config(broker_id=1, request_timeout_ms=3000)
    found = StateLinks(config, None, Metadata(BrokerId(1)), coordinator, create)  # type: ignore[arg-type]
    found.made = made  # type: ignore[attr-defined]
    return found


def run(test: Callable[[], Any]) -> Any:
    return trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def test_it_is_tried_again_while_there_is_no_coordinator() -> None:
    leaders = iter([-2, -1, 1, 1])
    codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE])
    now = [next(leaders)]

    def answer(call: StateCall) -> StateAnswer:
        assert call == StateCall(READ, KEY, leader_epoch=8)
        return StateAnswer(next(codes), start_offset=77)

    def leader() -> int:
        return now[0]

    async def test() -> None:
        under_test = links(Coordinator(answer), leader)

        async def move() -> None:
            for there in leaders:
                await trio.sleep(0.2)
                now[0] = there

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            assert (await under_test.read(KEY, 8)).start_offset == 77
            nursery.cancel_scope.cancel()
        assert under_test.made  # type: ignore[attr-defined]

    run(test)


def test_it_ends_with_the_last_error_and_without_an_answer_with_a_time_out() -> None:
    async def test() -> None:
        refused = links(Coordinator(lambda _: StateAnswer(ErrorCode.NOT_COORDINATOR)))
        began = trio.current_time()
        assert (await refused.delete(KEY)).error is ErrorCode.NOT_COORDINATOR
        assert 2 < trio.current_time() - began <= 3
        began = trio.current_time()
        silent = links(Coordinator(lambda _: None))
        assert (await silent.delete(KEY)).error is ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() - began == pytest.approx(3)
        fenced = Coordinator(lambda _: StateAnswer(ErrorCode.FENCED_LEADER_EPOCH))
        assert (await links(fenced).read(KEY, 1)).error is ErrorCode.FENCED_LEADER_EPOCH
        assert len(fenced.calls) == 1

    run(test)


def test_writes_of_one_share_partition_wait_for_each_other() -> None:
    async def test() -> None:
        waiting: list[tuple[StateCall, Callable[[StateAnswer], None]]] = []

        class Slow(Coordinator):
            def carry_out(self, call: StateCall, done: Callable[[StateAnswer], None]) -> None:
                waiting.append((call, done))

        under_test = links(Slow(lambda _: None))
        async with trio.open_nursery() as nursery:
            for key, start in ((KEY, 1), (KEY, 2), (OTHER, 3)):
                nursery.start_soon(under_test.write, key, 0, 0, start, 0, BATCHES)
                await trio.testing.wait_all_tasks_blocked()
            assert [call.start_offset for call, _ in waiting] == [1, 3]
            waiting[0][1](StateAnswer())
            await trio.testing.wait_all_tasks_blocked()
            assert [call.start_offset for call, _ in waiting] == [1, 3, 2]
            for _, done in waiting:
                done(StateAnswer())
        assert not under_test._writers

    run(test)
