"""What a copy's own requests tell, by requests as clients encode them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from highwater.chaos.aimed import wire as wires
from highwater.chaos.aimed.wire import CopyWire, IdUse
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import encode_request, encode_response
from highwater.kafka.wire.header import RequestHeader, parse_request_header
from highwater.kafka.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

OUTPUT = "invoices"


def header(key: int, version: int) -> RequestHeader:
    plain = key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff"
    return parse_request_header(memoryview(plain + b"\0"))


def ask(wire: CopyWire, request: Any, key: int, version: int) -> None:
    body = memoryview(encode_request(request, version))
    wire.asked(1, header(key, version), body, whole=True)


def produce(acks: int, topic: str = OUTPUT) -> Any:
    of = messages.ProduceRequest.TopicProduceData
    data = of.PartitionProduceData(index=2, records=b"")
    topics = [of(name=topic, partition_data=[data])]
    return messages.ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=7000, topic_data=topics
    )


def produced(error: int = 0, topic: str = OUTPUT) -> memoryview:
    of = messages.ProduceResponse.TopicProduceResponse
    partition = of.PartitionProduceResponse(
        index=2, error_code=error, base_offset=0, log_append_time_ms=-1, log_start_offset=0
    )
    answer = messages.ProduceResponse(
        responses=[of(name=topic, partition_responses=[partition])], throttle_time_ms=0
    )
    return memoryview(encode_response(answer, 7))


def commit(*partitions: int, topic: str = "orders") -> Any:
    of = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    places = [
        of.OffsetCommitRequestPartition(
            partition_index=p, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for p in partitions
    ]
    return messages.OffsetCommitRequest(
        group_id="app",
        generation_id_or_member_epoch=1,
        member_id="m",
        group_instance_id=None,
        topics=[of(name=topic, partitions=places)],
    )


@pytest.mark.parametrize("version", [7, 9])
async def test_an_acknowledgement_is_a_leaders_alone_where_it_was_asked_so(version: int) -> None:
    wire = CopyWire("orders", OUTPUT)
    for acks in (1, -1, 0, 1):
        ask(wire, produce(acks), 0, version)
    ask(wire, produce(-1, "another"), 0, version)
    for error, topic in ((0, OUTPUT), (0, OUTPUT), (6, OUTPUT), (0, "another")):
        wire.answered(1, 0, 7, produced(error, topic), whole=True)
    assert (wire.produced, wire.acks, wire.produce_ms) == (4, {0, 1, -1}, 7000)
    assert wire.acknowledged == {2: 2}
    assert wire.alone == 1


async def test_commits_tell_whose_partitions_they_are_and_how_often_they_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    owned: list[int] = []
    wire = CopyWire("orders", OUTPUT, owned.append)
    assert wire.interval_s is None
    for _ in range(4):
        ask(wire, commit(0, 2), 8, 7)
        await trio.sleep(2)
    ask(wire, commit(5, topic="another"), 8, 7)
    assert owned == [0, 2] * 4
    assert wire.commits_beside == 4
    assert wire.interval_s == pytest.approx(2)
    assert wire.groups == {"app"}
    assert wire.hold_s(commits=True) == pytest.approx(3)


async def test_a_message_is_held_for_less_than_the_clients_own_time_outs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = CopyWire("orders", OUTPUT)
    assert wire.hold_s(commits=True) == wires.SHORTEST_S
    wire.session_ms, wire.produce_ms = 6000, 3000
    for _ in range(2):
        ask(wire, commit(0), 8, 7)
        await trio.sleep(60)
    assert wire.hold_s(commits=True) == pytest.approx(3.6)
    assert wire.hold_s(commits=False) == pytest.approx(1.8)


async def test_what_cannot_be_read_tells_nothing() -> None:
    wire = CopyWire("orders", OUTPUT)
    for key in (0, 8, 11, 22, 28):
        wire.asked(1, header(key, 7), memoryview(b"\xff\xff"), whole=True)
        wire.answered(1, key, 7, memoryview(b"\xff"), whole=True)
    assert (wire.groups, wire.produced, list(wire.committed)) == (set(), 0, [])


def ended(error: int) -> memoryview:
    answer = messages.EndTxnResponse(throttle_time_ms=0, error_code=error)
    return memoryview(encode_response(answer, 1))


def test_a_copy_that_another_fences_is_counted_and_one_that_takes_over_is_not() -> None:
    ids, wires = IdUse(), {name: CopyWire("orders", OUTPUT) for name in ("app", "app-2")}
    for name, wire in wires.items():
        wire.fenced = partial(ids.fenced, name, ("id",))
    fenced, other = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
    ids.begins("app", "id")
    wires["app"].answered(1, 26, 1, ended(fenced), whole=True)
    assert ids.fences == 0, "by itself, in an earlier life"
    ids.begins("app-2", "id")
    for error in (0, other, fenced):
        wires["app"].answered(1, 26, 1, ended(error), whole=True)
        wires["app-2"].answered(1, 26, 1, ended(error), whole=True)
    assert ids.fences == 1


async def test_a_member_of_the_consumer_protocol_joins_with_each_epoch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wire = CopyWire("orders", OUTPUT)
    request = ConsumerGroupHeartbeatRequest(
        group_id="app", member_id="m-1", member_epoch=0, instance_id=None, rack_id=None,
        rebalance_timeout_ms=1000, subscribed_topic_names=["orders"], subscribed_topic_regex=None,
        server_assignor=None, topic_partitions=[],
    )  # fmt: skip
    joined = []
    for epoch, error in ((1, 0), (1, 0), (2, 0), (0, int(ErrorCode.UNKNOWN_MEMBER_ID))):
        await trio.sleep(1)
        ask(wire, request, 68, 1)
        answer = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=error, error_message=None, member_id="m-1",
            member_epoch=epoch, heartbeat_interval_ms=1000, assignment=None,
        )  # fmt: skip
        wire.answered(1, 68, 1, memoryview(encode_response(answer, 1)), whole=True)
        joined.append(wire.joined)
    assert (wire.groups, wire.member_id) == ({"app"}, "m-1")
    assert joined[0] == joined[1] < joined[2] == joined[3]
