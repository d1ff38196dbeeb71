"""A transactional producer: records to many partitions, and offsets, that count together or not.

    producer = TransactionalProducer(cluster, "payments")
    await nursery.start(producer.run)
    await producer.init()               # fences whoever used the id before
    producer.begin()
    await producer.send("orders", b"...")
    await producer.send_offsets("group", {tp: 7})
    await producer.commit()             # or abort()

It is in one of these states:

    UNINITIALIZED --init--> READY --begin--> OPEN --commit, abort--> READY
    OPEN --a record was not acknowledged--> BROKEN --abort--> READY
    any --another producer has taken the id over--> FENCED, for good

An EndTxn whose answer was lost is repeated, and then one of the two may still be on its way when
the next transaction has begun, which it would end.  After such a loss the producer has its epoch
raised before it goes on, so that whatever is late is refused.

Errors: ApiError with PRODUCER_FENCED is final; TRANSACTION_ABORTABLE asks for `abort`; what does
not pass within `max_block_s` is raised as it is, and leaves the outcome open.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import trio

from highwater.kafka.client.batches import Delivery, Identity, Outcome
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.partitioner import partition_of
from highwater.kafka.client.producer import Producer, Receipt
from highwater.kafka.client.retries import RETRIABLE, code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

FIND_COORDINATOR = 2
INIT_PRODUCER_ID = 3
ADD_PARTITIONS = 1
ADD_OFFSETS = 1
TXN_OFFSET_COMMIT = 3
END_TXN = 1
GROUP, TRANSACTION = 0, 1
NOBODY_YET = Identity(-1, -1)
CONCURRENT_S = 0.02

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class State(Enum):
    UNINITIALIZED = "not initialized: call init"
    READY = "ready: call begin"
    OPEN = "in a transaction"
    BROKEN = "in a transaction that has to be aborted"
    FENCED = "fenced by another producer"


class TransactionalProducer:
    """One producer under a transactional id; `run` it in a task.  One caller at a time."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        max_block_s: float = 60.0,
        **settings: Any,
    ) -> None:
        """`timeout_ms` is the transaction's, after which the coordinator aborts it; `settings` are
        `Producer`'s.
        """
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.max_block_s = max_block_s
        self.state = State.UNINITIALIZED
        self.identity = NOBODY_YET
        self._cluster = cluster
        self._producer = Producer(cluster, transactional_id=transactional_id, **settings)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._joined: dict[TopicPartition, None] = {}
        self._ends = False
        """Something belongs to the open transaction, so that it has to be ended."""
        self._uncertain = False
        self._turn = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._producer.run(task_status=task_status)

    # --- for the caller

    async def init(self) -> None:
        """Takes the id over: earlier producers are fenced, what they left open is aborted."""
        if self.state is not State.UNINITIALIZED:
            raise RuntimeError(f"the producer is {self.state.value}")
        await self._init(NOBODY_YET)
        self.state = State.READY

    def begin(self) -> None:
        self._require(State.READY)
        self._joined.clear()
        self._ends = False
        self.state = State.OPEN

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> Receipt:
        """As `Producer.send`; a partition's first record waits until that has joined."""
        self._require(State.OPEN)
        if partition is None:
            count = await self._cluster.partitions(topic)
            self._turn += key is None
            partition = self._turn % count if key is None else partition_of(key, count)
        tp = TopicPartition(topic, partition)
        if tp not in self._joined:
            await self._join(tp)
        return await self._producer.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            report=self._reported,
        )

    async def send_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
    ) -> None:
        """The group's offsets become the transaction's: they count when it is committed."""
        self._require(State.OPEN)
        await self._renew()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group_id,
        )
        await self._ask(TRANSACTION, self.transactional_id, request, ADD_OFFSETS, _error)
        self._ends = True
        topics: dict[str, list[Any]] = {}
        topic_class = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        for tp, offset in offsets.items():
            partition = topic_class.TxnOffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(tp.topic, []).append(partition)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[topic_class(name=name, partitions=ps) for name, ps in topics.items()],
        )
        await self._ask(GROUP, group_id, commit, TXN_OFFSET_COMMIT, _offset_error)

    async def commit(self) -> None:
        """Everything sent is visible to read_committed from here on; else raises ApiError."""
        self._require(State.OPEN)
        await self._producer.flush()
        self._require(State.OPEN)
        if self._ends:
            await self._end(commit=True)
        self.state = State.READY

    async def abort(self) -> None:
        """Nothing of it will ever be visible to read_committed."""
        if self.state is not State.BROKEN:
            self._require(State.OPEN)
        await self._producer.flush()
        broken = self.state is State.BROKEN
        if self._ends:
            await self._end(commit=False)
        self._uncertain = self._uncertain or broken  # sequences may have parted
        self.state = State.READY

    # --- inside

    def _require(self, state: State) -> None:
        if self.state is state:
            return
        if self.state is State.FENCED:
            raise ApiError(ErrorCode.PRODUCER_FENCED, self.transactional_id)
        if self.state is State.BROKEN:
            raise ApiError(ErrorCode.TRANSACTION_ABORTABLE, "a record was not acknowledged")
        raise RuntimeError(f"the producer is {self.state.value}")

    def _reported(self, delivery: Delivery) -> None:
        if delivery.outcome is not Outcome.ACKED and self.state is State.OPEN:
            self.state = State.BROKEN

    async def _init(self, expected: Identity) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )
        name = self.transactional_id
        answer = await self._ask(TRANSACTION, name, request, INIT_PRODUCER_ID, _error)
        self.identity = Identity(answer.producer_id, answer.producer_epoch)
        self._producer.become(self.identity)
        self._uncertain = False

    async def _join(self, tp: TopicPartition) -> None:
        await self._renew()
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[topic(name=tp.topic, partitions=[tp.partition])],
        )
        name = self.transactional_id
        await self._ask(TRANSACTION, name, request, ADD_PARTITIONS, _partition_error)
        self._joined[tp] = None
        self._ends = True

    async def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )
        await self._ask(TRANSACTION, self.transactional_id, request, END_TXN, _error)

    async def _renew(self) -> None:
        """Before a transaction has anything: a higher epoch, if something may still be late."""
        if self._uncertain and not self._ends:
            await self._init(self.identity)

    async def _ask(self, kind: int, key: str, request: Any, version: int, error_of: Any) -> Any:
        """Until a coordinator has done it; raises ApiError or OSError."""
        deadline = trio.current_time() + self.max_block_s
        while True:
            try:
                node = await self._coordinator(kind, key)
                answer = await self._cluster.call(node, request, version)
                code = error_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                raise ApiError(code, f"{type(request).__name__} for {key}")
            except OSError:
                self._coordinators.pop((kind, key), None)
                self._uncertain = True
                if trio.current_time() >= deadline:
                    raise
            except ApiError as exc:
                if exc.code in _FENCED:
                    self.state = State.FENCED
                    raise ApiError(ErrorCode.PRODUCER_FENCED, str(exc)) from exc
                if exc.code in _MOVED:
                    self._coordinators.pop((kind, key), None)
                    self._uncertain = True  # its answer may come after what it has done
                if exc.code not in RETRIABLE or trio.current_time() >= deadline:
                    raise
                if exc.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    await trio.sleep(CONCURRENT_S)
                    continue
            await trio.sleep(self._cluster.retry_backoff_s)

    async def _coordinator(self, kind: int, key: str) -> int:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        cluster = self._cluster
        await cluster.ensure([])
        request = FindCoordinatorRequest(key=key, key_type=kind)
        error: OSError | None = None
        for node in sorted(cluster.nodes):
            try:
                answer = await cluster.call(node, request, FIND_COORDINATOR)
            except OSError as exc:
                error = exc
                continue
            if answer.error_code:
                raise ApiError(code_of(answer.error_code), f"coordinator of {key}")
            if answer.node_id not in cluster.nodes:
                cluster.mark_stale()
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {answer.node_id}")
            self._coordinators[kind, key] = answer.node_id
            return int(answer.node_id)
        raise error or OSError("no brokers")


def _error(answer: Any) -> ErrorCode:
    return code_of(answer.error_code)


def _partition_error(answer: Any) -> ErrorCode:
    results = answer.results_by_topic_v3_and_below
    return code_of(results[0].results_by_partition[0].partition_error_code)


def _offset_error(answer: Any) -> ErrorCode:
    codes = [code_of(p.error_code) for t in answer.topics for p in t.partitions]
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
