"""Transactions of version 2 on one broker: EndTxn v5, and partitions that the leader adds."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.handlers import add_partitions_to_txn, end_txn, produce
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    ProduceRequest,
)
from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch
from tests.running import Body, running_in
from tests.unit.broker.handlers import test_transactions
from tests.unit.broker.handlers.test_transactions import DATA, ME, OFFSETS, Node, name_of


class Bumping(Node):
    async def bump(self, who: tuple[int, int] = ME, *, commit: bool = True) -> Any:
        """The identity for the next transaction, or the error."""
        request = EndTxnRequest(
            transactional_id="x", producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        found = await self.b.ask(end_txn, 5, request)
        if found.error_code:
            assert (found.producer_id, found.producer_epoch) == (-1, -1)
            return name_of(found.error_code)
        return found.producer_id, found.producer_epoch

    async def write(self, sequence: int, who: tuple[int, int] = ME, version: int = 12) -> str:
        batch = build_batch(
            [Record(None, b"v", 1000)], producer_id=who[0], producer_epoch=who[1],
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        topic = ProduceRequest.TopicProduceData
        partition = topic.PartitionProduceData(index=0, records=bytes(batch))
        request = ProduceRequest(
            transactional_id="x", acks=-1, timeout_ms=5000,
            topic_data=[topic(name="t", partition_data=[partition])],
        )  # fmt: skip
        body = encode_request(request, version)
        reply = produce.handle(self.b.context(produce, version), memoryview(bytearray(body)))
        if not hasattr(reply, "parts"):
            reply = await self.b._wait(reply, body)
        found = decode_response(0, version, b"".join(reply.parts or ()))  # type: ignore[arg-type]
        return name_of(found.responses[0].partition_responses[0].error_code)

    async def done(self, who: tuple[int, int], *, commit: bool = True) -> None:
        """Writes the marker of the last transaction."""
        assert await self.mark(commit=commit, who=who, version=2) == "NONE"
        self.marked(DATA)


def run(body: Body, **config: Any) -> None:
    async def main(node: Node) -> None:
        await body(Bumping(node.b))

    test_transactions.run(main, **config)


in_node = running_in(run)


@in_node()
async def test_transactions_without_adding_partitions(node: Bumping) -> None:
    await node.leads()
    await node.init()
    assert await node.write(0, version=11) == "TRANSACTION_ABORTABLE"
    assert await node.write(0) == "NONE"
    assert await node.write(1) == "NONE"
    assert await node.describe() == ("Ongoing", ["t"])
    assert await node.bump() == (0, 1)
    await node.done((0, 1))
    assert await node.describe() == ("CompleteCommit", [])
    assert await node.stable_offset() == 3
    assert await node.write(2) == "INVALID_PRODUCER_EPOCH", "late, and begins nothing"
    assert await node.bump() == (0, 1), "a repeated request"
    assert await node.write(0, (0, 1)) == "NONE"
    assert await node.bump() == "PRODUCER_FENCED", "late, and ends nothing"
    assert await node.describe() == ("Ongoing", ["t"])
    assert await node.bump((0, 1), commit=False) == (0, 2)
    assert await node.write(0, (7, 0)) == "INVALID_PRODUCER_ID_MAPPING"


@in_node(transaction_partition_verification_enable=False)
async def test_partitions_are_added_where_leaders_do_not_verify(node: Bumping) -> None:
    await node.leads()
    await node.init()
    assert await node.write(0) == "NONE"
    assert await node.describe() == ("Ongoing", ["t"])
    assert await node.bump() == (0, 1)
    await node.done((0, 1))
    assert await node.write(1) == "INVALID_PRODUCER_EPOCH"


@in_node()
async def test_a_batch_that_comes_before_the_markers_waits_for_them(node: Bumping) -> None:
    await node.leads()
    await node.init()
    await node.write(0)
    await node.bump()
    answers: list[str] = []
    began = trio.current_time()

    async def writes() -> None:
        answers.append(await node.write(0, (0, 1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(writes)
        await trio.sleep(0.07)
        assert answers == []
        await node.done((0, 1))
    assert answers == ["NONE"]
    assert trio.current_time() - began < 0.1
    assert await node.describe() == ("Ongoing", ["t"])


@in_node()
async def test_a_batch_waits_for_markers_no_longer_than_that(node: Bumping) -> None:
    await node.leads()
    await node.init()
    await node.write(0)
    await node.bump()
    began = trio.current_time()
    assert await node.write(0, (0, 1)) == "CONCURRENT_TRANSACTIONS"
    assert trio.current_time() - began == pytest.approx(0.1, abs=0.03)
    assert await node.write(0, (0, 1), version=11) == "NOT_ENOUGH_REPLICAS"
    await node.done((0, 1))
    assert await node.write(0, (0, 1)) == "NONE"


@in_node()
async def test_an_open_transaction_of_another_epoch_takes_no_batch(node: Bumping) -> None:
    """Its marker has not come yet; the batch belongs to the next one."""
    await node.leads()
    await node.init()
    await node.write(0)
    await node.bump()
    assert await node.write(0, (0, 1), version=11) == "NOT_ENOUGH_REPLICAS"


@in_node()
async def test_a_late_marker_does_not_end_the_next_transaction(node: Bumping) -> None:
    await node.leads()
    await node.init()
    await node.write(0)
    await node.bump()
    assert await node.mark(who=ME, version=2) == "INVALID_PRODUCER_EPOCH"
    await node.done((0, 1))
    assert await node.mark(who=(0, 1), version=2) == "NONE", "sent once more, it harms nobody"
    await node.write(0, (0, 1))
    assert await node.mark(who=(0, 1), version=2) == "INVALID_PRODUCER_EPOCH"
    assert await node.describe() == ("Ongoing", ["t"])
    assert await node.stable_offset() < node.b.services.replicas.partition(DATA).high_watermark


@in_node()
async def test_offsets_without_adding_their_partition(node: Bumping) -> None:
    await node.leads()
    await node.init()
    assert await node.commit_offset(5, version=4) == "TRANSACTION_ABORTABLE"
    assert await node.commit_offset(5, version=5) == "NONE"
    assert await node.describe() == ("Ongoing", ["__consumer_offsets"])
    assert await node.bump() == (0, 1)
    assert await node.commit_offset(6, (0, 1), version=5) == "CONCURRENT_TRANSACTIONS", "at once"
    assert await node.mark("__consumer_offsets", who=(0, 1)) == "NONE"
    node.marked(OFFSETS)
    assert await node.offset() == 5
    assert await node.commit_offset(7, version=5) == "INVALID_PRODUCER_EPOCH"
    assert await node.commit_offset(6, (0, 1), version=5) == "NONE"


@in_node()
async def test_a_broker_adds_partitions_for_another_one(node: Bumping) -> None:
    await node.leads()
    await node.init()
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=0, producer_epoch=0, verify_only=False, topics=[topic]
    )
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    for _ in range(2):
        found = await node.b.ask(add_partitions_to_txn, 4, request)
        result = found.results_by_transaction[0].topic_results[0].results_by_partition[0]
        assert name_of(result.partition_error_code) == "NONE"
    stored = node.b.services.transactions.describe("x").stored
    assert stored.client_version == 2


@in_node()
async def test_without_a_producer_id_the_last_epoch_ends_later(node: Bumping) -> None:
    await node.leads()
    transactions: Any = node.b.services.transactions
    await node.init()
    txn = transactions.describe("x")
    txn.stored = type(txn.stored)(0, 32766, 60_000)
    await node.write(0, (0, 32766))
    path = "/latest_producer_id_block"
    block, _ = await node.b.zk.get(path)
    await node.b.zk.delete(path)
    node.b.services.producer_ids._next = node.b.services.producer_ids._end + 1
    assert await node.bump((0, 32766)) == "COORDINATOR_LOAD_IN_PROGRESS"
    await node.b.zk.create(path, block)
    assert await node.bump((0, 32766)) == (1000, 0)
