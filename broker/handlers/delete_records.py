"""DeleteRecords, API 21, v0-2: moves the log start offset up (KIP-107).

The answer is given when every live replica has followed: the low watermark, the least log start
offset among them, has reached the offset asked for.  -1 asks for everything below the HW.
No record of an internal topic is deleted (INVALID_TOPIC_EXCEPTION).
"""

from __future__ import annotations

from typing import Any, ClassVar

from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.replica.partition import Partition
from highwater.broker.replica.reading import lowest_start
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import DeleteRecordsResponse

API = Api(
    key=21,
    name="DeleteRecords",
    versions=(0, 2),
    access=Access(
        each=of(ResourceType.TOPIC, Operation.DELETE, "name"), items=("topics",), answers="topics"
    ),
)

HIGH_WATERMARK = -1

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult


def handle(ctx: Context, request: Any) -> Reply:
    results: dict[TopicPartition, tuple[ErrorCode, int]] = {}
    waiting: dict[TopicPartition, tuple[Partition, int]] = {}
    for topic in request.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            try:
                partition = ctx.services.replicas.partition(tp)
                if topic.name in INTERNAL_TOPICS:
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                with ctx.services.replicas.disk_of(partition):
                    waiting[tp] = (partition, _advance(partition, p.offset))
            except ApiError as e:
                results[tp] = (e.code, -1)
    return Delayed(DelayedDeleteRecords(ctx, results, waiting, request.timeout_ms))


def _advance(partition: Partition, offset: int) -> int:
    log = partition.leader_log()
    if "delete" not in log.config.cleanup_policy:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0 or target > partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if target > log.log_start_offset:
        log.advance_log_start(target)
    return target


class DelayedDeleteRecords(DelayedOperation):
    kind: ClassVar[str] = "DeleteRecords"

    def __init__(
        self,
        ctx: Context,
        results: dict[TopicPartition, tuple[ErrorCode, int]],
        waiting: dict[TopicPartition, tuple[Partition, int]],
        timeout_ms: int,
    ) -> None:
        self.ctx = ctx
        self.results = results
        self.waiting = waiting
        self.keys = list(waiting)
        self.timeout_ms = timeout_ms

    def try_complete(self) -> Response | None:
        live = [int(b) for b in self.ctx.services.metadata.brokers()]
        for tp, (partition, target) in list(self.waiting.items()):
            try:
                low = lowest_start(partition, live)
            except ApiError as e:
                self.results[tp] = (e.code, -1)
                del self.waiting[tp]
                continue
            if low >= target:
                self.results[tp] = (ErrorCode.NONE, low)
                del self.waiting[tp]
        return None if self.waiting else self._answer()

    def on_expire(self) -> Response:
        for tp in self.waiting:
            self.results[tp] = (ErrorCode.REQUEST_TIMED_OUT, -1)
        return self._answer()

    def _answer(self) -> Response:
        topics: dict[str, list[Any]] = {}
        for tp, (code, low) in self.results.items():
            topics.setdefault(tp.topic, []).append(
                _Partition(partition_index=tp.partition, low_watermark=low, error_code=int(code))
            )
        answer = DeleteRecordsResponse(
            topics=[_Topic(name=n, partitions=p) for n, p in topics.items()]
        )
        return Response(answer, error_names=error_names(code for code, _ in self.results.values()))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    results = {
        TopicPartition(topic.name, p.partition_index): (code, -1)
        for topic in request.topics
        for p in topic.partitions
    }
    return DelayedDeleteRecords(ctx, results, {}, 0).on_expire()
