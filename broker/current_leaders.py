"""Who leads instead: Produce and Fetch tell a client that came to the wrong broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable

from highwater.broker.context import Context
from highwater.kafka.types import BrokerId, TopicPartition
from highwater.kafka.wire.node_endpoints import NodeEndpoint


def current_leader(ctx: Context, tp: TopicPartition) -> tuple[int, int]:
    """The leader and its epoch, -1 for what this broker does not know."""
    hosted = ctx.services.replicas.partitions.get(tp)
    if hosted is not None:
        return int(hosted.leader), int(hosted.leader_epoch)
    known = ctx.services.metadata.partition(tp)
    return (-1, -1) if known is None else (int(known.leader), int(known.leader_epoch))


def endpoints(ctx: Context, leaders: Iterable[tuple[int, int] | None]) -> list[NodeEndpoint]:
    """The addresses of leaders on the client's listener, each once."""
    metadata, found = ctx.services.metadata, {}
    for told in leaders:
        place = None if told is None else metadata.endpoint_of(told[0], ctx.listener)
        if told is not None and place is not None:
            rack = metadata.brokers()[BrokerId(told[0])].rack
            found[told[0]] = NodeEndpoint(told[0], place.host, place.port, rack)
    return list(found.values())
