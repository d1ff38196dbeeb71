"""The calls of a transactional producer and of a read_committed consumer, one attempt each."""

from __future__ import annotations

from highwater.kafka.client.fetched import visible
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from highwater.simulation.workloads.plain_client import SimClient, check_code

TOPIC = "txn"
GROUP, TRANSACTION = 0, 1
READ_COMMITTED = 1
OF_V1, OF_V2 = {"Produce": 8, "TxnOffsetCommit": 2, "EndTxn": 3}, {
    "Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5,
}  # fmt: skip
"""The versions of requests by which a client says that it speaks transaction.version 1, or 2."""


class TxnClient(SimClient):
    """`lose` forgets the known coordinators, after an error."""

    _coordinators: dict[tuple[int, str], tuple[str, int]]

    async def coordinator(self, kind: int, key: str) -> tuple[str, int]:
        known = self.__dict__.setdefault("_coordinators", {})
        if (kind, key) not in known:
            address = self._world.random.choice(self._bootstrap)
            answer = await self._call(address, FindCoordinatorRequest(key=key, key_type=kind), 2)
            check_code(answer.error_code)
            known[kind, key] = (answer.host, answer.port)
        return known[kind, key]

    def last_asked(self, kind: int, key: str) -> str:
        """The host that this client takes for the coordinator; "" if it knows none."""
        return self.__dict__.get("_coordinators", {}).get((kind, key), ("", 0))[0]

    def lose(self, kind: int, key: str) -> None:
        self.__dict__.setdefault("_coordinators", {}).pop((kind, key), None)

    async def init(
        self, name: str, timeout_ms: int, expected: tuple[int, int] = (-1, -1)
    ) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = await self._call(await self.coordinator(TRANSACTION, name), request, 4)
        check_code(answer.error_code)
        return int(answer.producer_id), int(answer.producer_epoch)

    async def add(self, name: str, producer: tuple[int, int], tp: TopicPartition) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[topic(name=tp.topic, partitions=[tp.partition])],
        )
        answer = await self._call(await self.coordinator(TRANSACTION, name), request, 3)
        found = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        check_code(found.partition_error_code)

    async def end(
        self, name: str, producer: tuple[int, int], commit: bool, *, bumps: bool = False
    ) -> tuple[int, int]:
        """Gives the identity for the next transaction: the same, unless an end `bumps` it."""
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        version = (OF_V2 if bumps else OF_V1)["EndTxn"]
        answer = await self._call(await self.coordinator(TRANSACTION, name), request, version)
        check_code(answer.error_code)
        return (int(answer.producer_id), int(answer.producer_epoch)) if bumps else producer

    async def add_offsets(
        self, name: str, producer: tuple[int, int], group: str | None = None
    ) -> None:
        """The group is that of the transactional id's name, if none is given; so below."""
        request = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group or name,
        )
        answer = await self._call(await self.coordinator(TRANSACTION, name), request, 3)
        check_code(answer.error_code)

    async def commit_offset(
        self,
        name: str,
        producer: tuple[int, int],
        offset: int,
        group: str | None = None,
        *,
        bumps: bool = False,
    ) -> None:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group or name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[topic(name=TOPIC, partitions=[partition])],
        )
        version = (OF_V2 if bumps else OF_V1)["TxnOffsetCommit"]
        answer = await self._call(await self.coordinator(GROUP, group or name), request, version)
        check_code(answer.topics[0].partitions[0].error_code)

    async def commit_alone(self, group: str, offset: int) -> None:
        """Commits outside of any transaction, to a group without members."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic(name=TOPIC, partitions=[partition])],
        )
        answer = await self._call(await self.coordinator(GROUP, group), request, 7)
        check_code(answer.topics[0].partitions[0].error_code)

    async def committed_offset(self, name: str, *, stable: bool = True) -> int:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=name,
            topics=[topic(name=TOPIC, partition_indexes=[0])],
            require_stable=stable,
        )
        answer = await self._call(await self.coordinator(GROUP, name), request, 7)
        check_code(answer.error_code)
        found = answer.topics[0].partitions[0]
        check_code(found.error_code)
        return int(found.committed_offset)

    async def send(
        self, name: str, tp: TopicPartition, batch: bytes, *, bumps: bool = False
    ) -> int:
        address, _ = await self._leader(tp)
        topic = ProduceRequest.TopicProduceData
        data = topic.PartitionProduceData(index=tp.partition, records=batch)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=1500,
            topic_data=[topic(name=tp.topic, partition_data=[data])],
        )
        answer = await self._call(address, request, (OF_V2 if bumps else OF_V1)["Produce"])
        result = answer.responses[0].partition_responses[0]
        check_code(result.error_code)
        return int(result.base_offset)

    async def read(
        self, tp: TopicPartition, offset: int, max_wait_ms: int = 100
    ) -> tuple[list[tuple[int, bytes]], int, int]:
        """The visible records as (offset, value), the next position, and the answer's LSO."""
        p = await self.fetch_decoded(
            tp, offset, version=11, isolation=READ_COMMITTED, max_wait_ms=max_wait_ms
        )
        lso = int(p.last_stable_offset)
        aborted = [(a.producer_id, a.first_offset) for a in p.aborted_transactions or ()]
        data = memoryview(bytes(p.records or b""))
        records, position = visible(data, offset, aborted)
        return [(r.offset, r.value or b"") for r in records], position, lso

    async def end_offset(self, tp: TopicPartition, isolation: int) -> int:
        address, epoch = await self._leader(tp)
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=epoch, timestamp=-1
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[topic(name=tp.topic, partitions=[partition])],
        )
        question = self._question(address, tp)
        answer = await self._call(address, request, 5)
        found = answer.topics[0].partitions[0]
        check_code(found.error_code)
        question.latest(tp, int(found.offset), committed=isolation == READ_COMMITTED)
        return int(found.offset)
