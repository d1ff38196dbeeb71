"""Topics as an administrator sees them: list, describe, create, delete.

Each call returns when it is done: a created topic has leaders, a deleted one is gone.  Versions are
those that brokers from 2.6 to 4.x answer, so nothing is negotiated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import trio

from highwater.kafka.client.metadata import METADATA_VERSION, Cluster
from highwater.kafka.client.retries import RETRIABLE, code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    MetadataRequest,
)

CREATE_VERSION, DELETE_VERSION, CONFIGS_VERSION = 4, 4, 1
_TOPIC, _TOPIC_SOURCE = 2, 1
"""ConfigResource.Type.TOPIC; ConfigSource.DYNAMIC_TOPIC_CONFIG."""
_AGAIN_S = 0.05


class PartitionState(NamedTuple):
    partition: int
    leader: int
    """-1: none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topic(NamedTuple):
    name: str
    internal: bool
    partitions: tuple[PartitionState, ...]

    @property
    def is_led(self) -> bool:
        return bool(self.partitions) and all(p.leader >= 0 for p in self.partitions)


async def topics(cluster: Cluster) -> list[Topic]:
    """All of them, by name; raises OSError."""
    await cluster.refresh()
    error: OSError | None = None
    for node in sorted(cluster.nodes):
        try:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            answer = await cluster.call(node, request, METADATA_VERSION)
        except OSError as exc:
            error = exc
            continue
        found = [_topic(t) for t in answer.topics if not t.error_code]
        return sorted(found, key=lambda topic: topic.name)
    raise error or OSError("the cluster names no brokers")


def _topic(answer: Any) -> Topic:
    partitions = [
        PartitionState(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
        )
        for p in answer.partitions
    ]
    return Topic(answer.name, bool(answer.is_internal), tuple(sorted(partitions)))


async def topic(cluster: Cluster, name: str) -> Topic:
    """Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) with the names that there are, and OSError."""
    found = await topics(cluster)
    for one in found:
        if one.name == name:
            return one
    names = ", ".join(t.name for t in found if not t.internal)
    raise ApiError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no topic {name!r}, or this user may not see it: "
        + (f"there are {names}" if names else "there are none"),
    )


async def settings(cluster: Cluster, name: str) -> dict[str, str]:
    """The properties that are set at the topic itself; raises ApiError and OSError."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[resource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)],
        include_synonyms=False,
    )
    answer = await cluster.call(_any(cluster), request, CONFIGS_VERSION)
    result = answer.results[0]
    if result.error_code:
        raise ApiError(code_of(result.error_code), f"{name}: {result.error_message}")
    return {c.name: c.value for c in result.configs if c.config_source == _TOPIC_SOURCE}


async def create(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> Topic:
    """-1: the cluster's default.  Raises ApiError, and OSError where the controller is away."""
    wanted = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            wanted(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                assignments=[],
                configs=[
                    wanted.CreatableTopicConfig(name=n, value=v) for n, v in (config or {}).items()
                ],
            )
        ],
        timeout_ms=int(timeout_s * 1000),
        validate_only=False,
    )
    try:
        with trio.fail_after(timeout_s):
            await _ask_controller(cluster, request, CREATE_VERSION)
            while True:
                found = next((t for t in await topics(cluster) if t.name == name), None)
                if found is not None and found.is_led:
                    return found
                await trio.sleep(_AGAIN_S)
    except trio.TooSlowError:
        raise _late(f"topic {name} has no leaders", timeout_s) from None


async def delete(cluster: Cluster, name: str, *, timeout_s: float = 30.0) -> None:
    """Raises ApiError, and OSError where the controller is away."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(timeout_s * 1000))
    try:
        with trio.fail_after(timeout_s):
            await _ask_controller(cluster, request, DELETE_VERSION)
            while any(t.name == name for t in await topics(cluster)):
                await trio.sleep(_AGAIN_S)
    except trio.TooSlowError:
        raise _late(f"topic {name} is still there", timeout_s) from None


async def _ask_controller(cluster: Cluster, request: Any, version: int) -> None:
    """Asks until the controller has decided; raises its ApiError.

    A request that had no answer may have been carried out: what the next one then finds done, is.
    """
    may_be_done = False
    while True:
        await cluster.refresh()
        try:
            node = (
                cluster.controller_id if cluster.controller_id in cluster.nodes else _any(cluster)
            )
            answer = await cluster.call(node, request, version)
        except OSError:
            may_be_done = True
            await trio.sleep(_AGAIN_S)
            continue
        result = (answer.topics if hasattr(answer, "topics") else answer.responses)[0]
        code = code_of(result.error_code)
        if code is ErrorCode.NONE or (may_be_done and code in _DONE):
            return
        if code not in RETRIABLE or code in _DONE:
            told = getattr(result, "error_message", None)
            raise ApiError(code, told or f"{result.name}: {code.name}")
        await trio.sleep(_AGAIN_S)


_DONE = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _any(cluster: Cluster) -> int:
    if not cluster.nodes:
        raise OSError("the cluster names no brokers")
    return min(cluster.nodes)


def _late(what: str, timeout_s: float) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{what} after {timeout_s:g} s")
