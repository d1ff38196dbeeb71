"""The transaction APIs on one broker, whose roles come and go; markers are written by the test."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    offset_commit,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from highwater.kafka.client.produce_codec import parse_produce_response, produce_request
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchPartition
from highwater.kafka.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch
from tests.running import Body, running_in
from tests.unit.broker.handlers.conftest import Led, run_in_broker

TOPICS = ("__transaction_state", "__consumer_offsets", "t")
STATE, OFFSETS, DATA = (TopicPartition(topic, 0) for topic in TOPICS)
SETTINGS = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 10**9,
}
ME = (0, 0)
"""The first producer id and epoch."""


def name_of(code: int) -> str:
    return ErrorCode(code).name


class Node(Led):
    topics = TOPICS

    async def leads(self, isr: tuple[int, ...] = (1,)) -> None:
        """The broker leads, and has loaded the partition."""
        await self.role(1, isr)
        services = self.b.services
        while not (services.groups.shards[0].loaded and services.transactions.shards[0].loaded):
            await trio.sleep(0.01)

    async def init(self, version: int = 4, expected: tuple[int, int] = (-1, -1)) -> Any:
        """The id and epoch, or the error."""
        request = InitProducerIdRequest(
            transactional_id="x", transaction_timeout_ms=60_000,
            producer_id=expected[0], producer_epoch=expected[1],
        )  # fmt: skip
        found = await self.b.ask(init_producer_id, version, request)
        if found.error_code:
            return name_of(found.error_code)
        return found.producer_id, found.producer_epoch

    async def add(self, who: tuple[int, int] = ME, topic: str = "t", version: int = 3) -> str:
        entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1], v3_and_below_topics=[entry],
        )  # fmt: skip
        found = await self.b.ask(add_partitions_to_txn, version, request)
        results = found.results_by_topic_v3_and_below[0].results_by_partition
        return name_of(results[0].partition_error_code)

    async def verify(self, who: tuple[int, int] = ME, version: int = 5) -> str:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=who[0], producer_epoch=who[1], verify_only=True,
            topics=[topic],
        )  # fmt: skip
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        found = await self.b.ask(add_partitions_to_txn, version, request)
        result = found.results_by_transaction[0].topic_results[0].results_by_partition[0]
        return name_of(result.partition_error_code)

    async def send(self, sequence: int, who: tuple[int, int] = ME) -> str:
        batch = build_batch(
            [Record(None, b"v", 1000)], producer_id=who[0], producer_epoch=who[1],
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        body = b"".join(produce_request(-1, 5.0, [(DATA, batch)], "x"))
        ctx = self.b.context(produce, 7)
        reply = produce.handle(ctx, memoryview(bytearray(body)))
        if not hasattr(reply, "parts"):
            reply = await self.b._wait(reply, body)
        found = parse_produce_response(memoryview(b"".join(reply.parts or ())))  # type: ignore[arg-type]
        return name_of(found[DATA][0])

    async def end(self, *, commit: bool, who: tuple[int, int] = ME, version: int = 3) -> str:
        request = EndTxnRequest(
            transactional_id="x", producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        return name_of((await self.b.ask(end_txn, version, request)).error_code)

    async def mark(
        self, topic: str = "t", *, commit: bool = True, who: tuple[int, int] = ME, epoch: int = -1,
        version: int = 0,
    ) -> str:  # fmt: skip
        entry = WriteTxnMarkersRequest.WritableTxnMarker
        marker = entry(
            producer_id=who[0], producer_epoch=who[1], transaction_result=commit,
            topics=[entry.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=self.epoch if epoch < 0 else epoch,
            transaction_version=2 if version >= 2 else 0,
        )  # fmt: skip
        request = WriteTxnMarkersRequest(markers=[marker])
        found = await self.b.ask(write_txn_markers, version, request)
        return name_of(found.markers[0].topics[0].partitions[0].error_code)

    def marked(self, tp: TopicPartition) -> None:
        """Reports a leader's answer, as the sender of markers does."""
        transactions = self.b.services.transactions
        shard = transactions.shards[0]
        transactions.marked(shard, shard.transactions["x"], [tp])

    async def describe(self) -> tuple[str, list[str]]:
        request = DescribeTransactionsRequest(transactional_ids=["x"])
        found = (await self.b.ask(describe_transactions, 0, request)).transaction_states[0]
        if found.error_code:
            return name_of(found.error_code), []
        return found.transaction_state, [topic.topic for topic in found.topics]

    async def stable_offset(self) -> int:
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=-1, timestamp=-1
        )
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=1, topics=[topic(name="t", partitions=[partition])]
        )
        found = (await self.b.ask(list_offsets, 5, request)).topics[0].partitions[0]
        assert not found.error_code
        return int(found.offset)

    async def commit_offset(self, offset: int, who: tuple[int, int] = ME, version: int = 3) -> str:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=who[0], producer_epoch=who[1],
            generation_id=-1, member_id="", topics=[topic(name="t", partitions=[partition])],
        )  # fmt: skip
        found = await self.b.ask(txn_offset_commit, version, request)
        return name_of(found.topics[0].partitions[0].error_code)

    async def offset(self) -> int | str:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        request = OffsetFetchRequest(group_id="g", topics=[topic], require_stable=True)
        found = await self.b.ask(offset_fetch, 7, request)
        partition = found.topics[0].partitions[0]
        code = found.error_code or partition.error_code
        return name_of(code) if code else int(partition.committed_offset)


def run(body: Body, **config: Any) -> None:
    async def main(b: Any) -> None:
        await b.update_metadata({topic: {0: 1} for topic in TOPICS})
        async with trio.open_nursery() as nursery:
            await nursery.start(b.services.groups.run)
            await nursery.start(b.services.transactions.run)
            nursery.start_soon(b.services.completions.run)
            await body(Node(b))
            nursery.cancel_scope.cancel()

    run_in_broker(main, **SETTINGS | config)


in_node = running_in(run)


@in_node()
async def test_an_empty_transactional_id_is_refused(node: Node) -> None:
    await node.leads()
    request = EndTxnRequest(transactional_id="", producer_id=0, producer_epoch=0, committed=True)
    found = await node.b.ask(end_txn, 3, request)
    assert name_of(found.error_code) == "INVALID_REQUEST"


@in_node()
async def test_from_init_to_the_end(node: Node) -> None:
    assert await node.init() == "NOT_COORDINATOR"
    await node.leads()
    request = FindCoordinatorRequest(key="x", key_type=1)
    assert (await node.b.ask(find_coordinator, 2, request)).node_id == 1
    assert await node.describe() == ("TRANSACTIONAL_ID_NOT_FOUND", [])
    assert await node.init() == ME
    assert await node.describe() == ("Empty", [])
    assert await node.send(0) == "INVALID_TXN_STATE"  # the partition was not added
    assert await node.add() == "NONE"
    assert await node.send(0) == "NONE"
    assert await node.send(1) == "NONE"
    assert await node.describe() == ("Ongoing", ["t"])
    assert await node.stable_offset() == 0
    assert await node.end(commit=True) == "NONE"
    assert await node.describe() == ("PrepareCommit", ["t"])
    assert await node.mark() == "NONE"
    assert await node.stable_offset() == 3
    node.marked(DATA)
    assert await node.describe() == ("CompleteCommit", [])
    assert await node.send(2) == "INVALID_TXN_STATE"  # a late answer opens nothing
    listed = await node.b.ask(
        list_transactions, 1, ListTransactionsRequest(
            state_filters=["CompleteCommit", "Odd"], producer_id_filters=[], duration_filter=-1
        )
    )  # fmt: skip
    assert [t.transactional_id for t in listed.transaction_states] == ["x"]
    assert listed.unknown_state_filters == ["Odd"]


@pytest.mark.parametrize("version", range(4))
@in_node()
async def test_errors_that_old_clients_know(node: Node, version: int) -> None:
    await node.leads()
    await node.init()
    await node.init()
    fenced = "INVALID_PRODUCER_EPOCH" if version < 2 else "PRODUCER_FENCED"
    assert await node.add(version=version) == fenced
    assert await node.end(commit=True, version=version) == fenced
    assert await node.init(version=3, expected=ME) == "INVALID_PRODUCER_EPOCH"
    assert await node.init(version=4, expected=ME) == "PRODUCER_FENCED"
    assert await node.add((0, 1), "none", version) == "UNKNOWN_TOPIC_OR_PARTITION"


@in_node()
async def test_verification_for_other_brokers(node: Node) -> None:
    await node.leads()
    await node.init()
    assert await node.verify() == "TRANSACTION_ABORTABLE"
    await node.add()
    assert await node.verify() == "NONE"
    assert await node.verify((0, 1)) == "PRODUCER_FENCED"
    await node.role(2)
    assert await node.verify() == "NOT_COORDINATOR"


@in_node()
async def test_a_new_coordinator_goes_on_in_the_middle_of_a_commit(node: Node) -> None:
    await node.leads()
    await node.init()
    await node.add()
    await node.send(0)
    await node.end(commit=True)
    await node.role(2)
    assert await node.end(commit=True) == "NOT_COORDINATOR"
    await node.leads()
    assert await node.describe() == ("PrepareCommit", ["t"])
    assert await node.add() == "CONCURRENT_TRANSACTIONS"
    assert await node.end(commit=False) == "INVALID_TXN_STATE"
    assert await node.mark(epoch=node.epoch) == "NONE"
    assert await node.mark(epoch=1) == "TRANSACTION_COORDINATOR_FENCED"
    node.marked(DATA)
    assert await node.describe() == ("CompleteCommit", [])


@in_node()
async def test_nothing_is_served_before_the_hw_says_that_it_is_committed(node: Node) -> None:
    await node.leads()
    await node.init()
    await node.role(2)
    partition = node.b.services.replicas.partition(STATE)
    partition.host(partition.log, 0, 1)
    await node.role(1, (1, 2))
    await trio.sleep(5)
    assert await node.describe() == ("COORDINATOR_LOAD_IN_PROGRESS", [])
    listing = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)
    found = await node.b.ask(list_transactions, 1, listing)
    assert name_of(found.error_code) == "COORDINATOR_LOAD_IN_PROGRESS"


@in_node()
async def test_a_write_that_waits_is_refused_once_another_coordinates(node: Node) -> None:
    await node.leads()
    await node.init()
    await node.add()
    await node.leads((1, 2))
    answers: list[str] = []

    async def ends() -> None:
        answers.append(await node.end(commit=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends)
        await trio.sleep(0.1)
        assert answers == [], "replica 2 does not have it"
        await node.role(2)
        await trio.sleep(0.1)
        assert answers == ["NOT_COORDINATOR"]


@in_node()
async def test_a_decision_that_is_committed_after_its_answer_is_carried_out(node: Node) -> None:
    await node.leads()
    await node.init()
    await node.add()
    await node.leads((1, 2))
    transactions, replicas = node.b.services.transactions, node.b.services.replicas
    assert await node.end(commit=True) == "COORDINATOR_NOT_AVAILABLE"
    assert not transactions.markers._brokers, "no marker is on its way"
    end = replicas.partition(STATE).log.log_end_offset
    replicas.follower_progress(FetchPartition(STATE, -1, end, 0, 1000, -1), 2)
    await trio.sleep(0.1)
    assert await node.describe() == ("PrepareCommit", ["t"])
    assert [len(b.waiting) for b in transactions.markers._brokers.values()] == [1]


async def with_offsets(node: Node, offset: int) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=0, producer_epoch=0, group_id="g"
    )
    assert not (await node.b.ask(add_offsets_to_txn, 3, request)).error_code
    assert await node.commit_offset(offset) == "NONE"


@pytest.mark.parametrize("moves", [False, True])
@in_node()
async def test_offsets_wait_for_the_marker(node: Node, moves: bool) -> None:
    await node.leads()
    await node.init()
    assert await node.commit_offset(7) == "INVALID_TXN_STATE"  # the group was not added
    await with_offsets(node, 7)
    assert await node.offset() == "UNSTABLE_OFFSET_COMMIT"
    if moves:
        await node.role(2)
        assert await node.mark(OFFSETS.topic) == "NOT_LEADER_OR_FOLLOWER"
        await node.leads()
        assert await node.offset() == "UNSTABLE_OFFSET_COMMIT"
    assert await node.mark(OFFSETS.topic, commit=False) == "NONE"
    assert await node.offset() == -1
    await node.end(commit=False)
    node.marked(OFFSETS)
    await with_offsets(node, 8)
    assert await node.mark(OFFSETS.topic) == "NONE"
    assert await node.offset() == 8
    await node.role(2)
    await node.leads()
    assert await node.offset() == 8


@pytest.mark.parametrize("moves", [False, True])
@in_node()
async def test_a_later_plain_commit_stays(node: Node, moves: bool) -> None:
    await node.leads()
    await node.init()
    await with_offsets(node, 7)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=-1, committed_metadata=""
    )
    plain = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[topic(name="t", partitions=[partition])],
    )  # fmt: skip
    found = await node.b.ask(offset_commit, 7, plain)
    assert not found.topics[0].partitions[0].error_code
    assert await node.mark(OFFSETS.topic) == "NONE"
    if moves:
        await node.role(2)
        await node.leads()
    assert await node.offset() == 9
