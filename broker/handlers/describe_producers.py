"""DescribeProducers, API 61, v0: the producers in a replica's memory (KIP-664)."""

from __future__ import annotations

from typing import Any

from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_names import check_name
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import DescribeProducersResponse

API = Api(
    key=61,
    name="DescribeProducers",
    versions=(0, 0),
    access=Access(
        each=of(ResourceType.TOPIC, Operation.READ, "name"), items=("topics",), answers="topics"
    ),
)

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse
_Producer = _Partition.ProducerState


def handle(ctx: Context, request: Any) -> Reply:
    topics, codes = [], []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            code, producers = ErrorCode.NONE, []
            try:
                producers = _producers(ctx, TopicPartition(topic.name, index))
            except ApiError as e:
                code = e.code
            partitions.append(
                _Partition(partition_index=index, error_code=int(code), active_producers=producers)
            )
            codes.append(code)
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return Response(DescribeProducersResponse(topics=topics), error_names=error_names(codes))


def _producers(ctx: Context, tp: TopicPartition) -> list[Any]:
    """Raises ApiError where this broker holds no replica; a follower answers like the leader."""
    check_name(tp.topic)
    log = ctx.services.replicas.partition(tp).log
    if log is None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return [
        _Producer(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in log.producers.entries
    ]


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    topics = [
        _Topic(
            name=topic.name,
            partitions=[
                _Partition(partition_index=index, error_code=int(code), active_producers=[])
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    return Response(DescribeProducersResponse(topics=topics), error_names=(code.name,))
