"""The HW of partitions, wherever they are led: what a share group has yet to read is counted from
it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from highwater.broker.membership.peer_link import Link
from highwater.kafka.client.retries import code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.messages import ListOffsetsRequest

if TYPE_CHECKING:
    from highwater.broker.services import Services

VERSION: Final = 5
"""The version in inter.broker.protocol.version 2.6."""
LATEST: Final = -1
CONSUMER: Final = -1

Latest = dict[TopicPartition, int | ErrorCode]


async def latest_offsets(services: Services, tps: Iterable[TopicPartition]) -> Latest:
    """The HW of each partition, or an error."""
    found: Latest = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for tp in tps:
        leader = services.metadata.leader_of(tp)
        if leader == services.broker_id:
            try:
                found[tp] = services.replicas.partition(tp).latest_offset(0)
            except ApiError as e:
                found[tp] = e.code
        elif leader < 0:
            found[tp] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            elsewhere.setdefault(int(leader), []).append(tp)
    async with trio.open_nursery() as nursery:
        for leader_id, asked in elsewhere.items():
            nursery.start_soon(_ask, services, leader_id, asked, found)
    return found


async def _ask(
    services: Services, leader: int, tps: Sequence[TopicPartition], found: Latest
) -> None:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    part_class = topic_class.ListOffsetsPartition
    topics: dict[str, list[object]] = {}
    for tp in tps:
        part = part_class(partition_index=tp.partition, current_leader_epoch=-1, timestamp=LATEST)
        topics.setdefault(tp.topic, []).append(part)
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=0,
        topics=[topic_class(name=name, partitions=parts) for name, parts in topics.items()],
    )
    config, world, metadata = services.config, services.world, services.metadata
    link = Link(config, world, metadata, leader, "share-lag")
    try:
        answer = await link.call(request, VERSION)
    except (OSError, BadMessage):
        found.update(dict.fromkeys(tps, ErrorCode.NETWORK_EXCEPTION))
        return
    finally:
        link.close()
    found.update(dict.fromkeys(tps, ErrorCode.UNKNOWN_SERVER_ERROR))
    for topic in answer.topics:
        for part in topic.partitions:
            code = code_of(part.error_code)
            found[TopicPartition(topic.name, part.partition_index)] = code or part.offset
