"""OffsetForLeaderEpoch, API 23, v0-4: the end of an epoch in the leader's log (KIP-101, KIP-320).

The answer names the largest epoch at or below the one asked for, and the offset after its last
record.  Followers ask before they append; consumers ask to find out whether records that they have
read were truncated.

A consumer that has read a later epoch than this broker's knows of a later leader.  This broker is
then a zombie, and does not say that the records are missing: Kafka does, with -1, which would make
the consumer start over.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, cluster, either, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import OffsetForLeaderEpochResponse

API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=(0, 4),
    access=Access(
        each=either(
            cluster(Operation.CLUSTER_ACTION), of(ResourceType.TOPIC, Operation.DESCRIBE, "topic")
        ),
        items=("topics",),
        answers="topics",
    ),
)

_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Partition = _Topic.EpochEndOffset


def handle(ctx: Context, request: Any) -> Reply:
    topics, names = [], []
    for topic in request.topics:
        partitions = []
        for p in topic.partitions:
            code, epoch, end = ErrorCode.NONE, -1, -1
            try:
                partition = ctx.services.replicas.partition(
                    TopicPartition(topic.topic, p.partition)
                )
                partition.check_leader_epoch(p.current_leader_epoch)
                if request.replica_id < 0 and p.leader_epoch > partition.leader_epoch:
                    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
                epoch, end = partition.epoch_end_offset(p.leader_epoch)
            except ApiError as e:
                code = e.code
                names.append(code.name)
            partitions.append(
                _Partition(
                    error_code=int(code), partition=p.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(_Topic(topic=topic.topic, partitions=partitions))
    return Response(OffsetForLeaderEpochResponse(topics=topics), error_names=tuple(names))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    topics = [
        _Topic(
            topic=topic.topic,
            partitions=[
                _Partition(
                    error_code=int(code), partition=p.partition, leader_epoch=-1, end_offset=-1
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Response(OffsetForLeaderEpochResponse(topics=topics), error_names=(code.name,))
