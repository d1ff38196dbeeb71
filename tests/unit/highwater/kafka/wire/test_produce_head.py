"""The beginning of a Produce request, of every version, and cut short at every byte."""

from __future__ import annotations

import pytest

from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.produce_head import ProduceHead, read_head

BATCH = bytes(16) + b"\x02" + bytes(60)


def body(version: int, transactional_id: str | None) -> memoryview:
    of = messages.ProduceRequest.TopicProduceData
    data = of.PartitionProduceData(index=5, records=BATCH)
    request = messages.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1234,
        topic_data=[of(name="orders", partition_data=[data])],
    )
    return memoryview(encode_request(request, version))


@pytest.mark.parametrize("name", [None, "t"])
@pytest.mark.parametrize("version", range(3, 12))
def test_every_version_is_read_up_to_its_first_batch(version: int, name: str | None) -> None:
    whole = body(version, name)
    head = read_head(version, whole)
    assert head is not None
    assert head.batch is not None
    assert whole[head.batch :][: len(BATCH)] == BATCH
    assert head == ProduceHead(name, -1, 1234, "orders", 5, head.batch)


@pytest.mark.parametrize("version", [3, 9])
def test_one_that_is_cut_short_tells_what_is_there(version: int) -> None:
    whole = body(version, "t")
    known = [read_head(version, whole[:length]) for length in range(len(whole))]
    assert known[0] is None
    told = [head for head in known if head is not None]
    assert {(head.acks, head.timeout_ms) for head in told} == {(-1, 1234)}
    assert {head.topic for head in told} == {None, "orders"}
