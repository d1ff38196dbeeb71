"""Creates and deletes topics, through the controller, past every proxy.

The controller answers once it has decided; the others hear of it after that.  A fault may hit the
controller in between, so a topic counts as made when every running broker knows its leaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from highwater.cluster.ask import ask, metadata
from highwater.cluster.interface import PATIENCE_S, Cluster, ClusterError, broker
from highwater.cluster.leader_moves import controller_address, reachable
from highwater.cluster.run_folder import TopicInfo
from highwater.kafka.client.retries import RETRIABLE, code_of
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire import messages

_NEW = {ErrorCode.NONE}
_DONE = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}


class _Refused(ClusterError):
    """The controller's final refusal: asking again changes nothing."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int
    replication_factor: int = -1
    """-1: the cluster's default."""
    config: Mapping[str, str] = field(default_factory=dict)


async def create_topics(
    cluster: Cluster,
    topics: list[TopicInfo],
    timeout_s: float = PATIENCE_S,
    *,
    exists_ok: bool = True,
) -> None:
    """Makes a run's topics; accepts those that exist with as many partitions, or none."""
    wanted = [
        NewTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            {"min.insync.replicas": str(topic.min_insync_replicas)},
        )
        for topic in topics
    ]
    await create_new(cluster, wanted, exists_ok=exists_ok, timeout_s=timeout_s)


async def create_new(
    cluster: Cluster, topics: list[NewTopic], *, exists_ok: bool, timeout_s: float = PATIENCE_S
) -> None:
    """Repeats the request until the topics exist and every running broker knows them.  ClusterError
    names what is missing in the end; an error that no retry can cure raises it at once."""
    request = _creation(topics)
    last = "no answer"
    made: set[str] = set()
    with trio.move_on_after(timeout_s):
        while True:
            try:
                answer = await ask(await controller_address(cluster), request, 4, 12)
                made |= {t.name for t in answer.topics if t.error_code == ErrorCode.NONE}
                bad = [
                    t
                    for t in answer.topics
                    if t.error_code not in (_DONE if exists_ok or t.name in made else _NEW)
                ]
                if bad:
                    code = code_of(bad[0].error_code)
                    last = f"{bad[0].name}: {code.name}"
                    may_pass = code in RETRIABLE or _may_yet(cluster, code, topics)
                    if not may_pass and not await _leaving(cluster, bad[0]):
                        raise _Refused(f"{last} ({bad[0].error_message or 'no further word'})")
                else:
                    leaving = [t for t in answer.topics if await _leaving(cluster, t)]
                    while not leaving and (last := await _unknown(cluster, topics)):
                        await trio.sleep(0.02)
                    if not leaving:
                        return
                    last = f"{leaving[0].name} is still being deleted"
            except _Refused:
                raise
            except (OSError, ClusterError) as error:
                last = str(error)
                exists_ok = True  # the request without an answer may have made it
            await trio.sleep(0.2)
    raise ClusterError(f"the topics could not be created within {timeout_s:g} s: {last}")


def _creation(topics: list[NewTopic]) -> Any:
    topic_class = messages.CreateTopicsRequest.CreatableTopic
    return messages.CreateTopicsRequest(
        topics=[
            topic_class(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    topic_class.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.config.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=10000,
        validate_only=False,
    )


async def delete_topic(cluster: Cluster, name: str, timeout_s: float = PATIENCE_S) -> None:
    """Returns when no running broker knows the topic; ClusterError where that does not come."""
    request = messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=10000)
    gone = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    last = "no answer"
    with trio.move_on_after(timeout_s):
        while True:
            try:
                answer = await ask(await controller_address(cluster), request, 3, 12)
                code = code_of(answer.responses[0].error_code)
                last = code.name
                if code in gone:
                    while last := await _known(cluster, name):
                        await trio.sleep(0.02)
                    return
                if code not in RETRIABLE:
                    raise _Refused(f"{name} cannot be deleted: {code.name}")
            except _Refused:
                raise
            except (OSError, ClusterError) as error:
                last = str(error)
            await trio.sleep(0.2)
    raise ClusterError(f"{name} could not be deleted within {timeout_s:g} s: {last}")


async def _known(cluster: Cluster, name: str) -> str:
    """The first running broker that still knows the topic, in words; empty for none."""
    for number, address in reachable(cluster):
        answer = await metadata(address, [name])
        if any(topic.error_code == ErrorCode.NONE for topic in answer.topics):
            return f"broker-{number} still knows {name}"
    return ""


def _may_yet(cluster: Cluster, code: ErrorCode, topics: list[NewTopic]) -> bool:
    """Whether a retry may help: a running broker may not have registered yet."""
    running = sum(cluster.running(broker(number)) for number in cluster.brokers)
    enough = max(topic.replication_factor for topic in topics) <= running
    return code is ErrorCode.INVALID_REPLICATION_FACTOR and enough


async def _leaving(cluster: Cluster, answer: Any) -> bool:
    """Whether the topic is being deleted: it exists, but no broker knows it.  Its znode outlives
    the answer to DeleteTopics, and it can be made again once the replicas are gone."""
    if answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    return not await _known(cluster, answer.name)


async def _unknown(cluster: Cluster, topics: list[NewTopic]) -> str:
    """The first broker that lacks a leader of some partition, in words; empty for none."""
    wanted = {topic.name: topic.partitions for topic in topics}
    for number, address in reachable(cluster):
        answer = await metadata(address, list(wanted))
        led = {t.name: sum(p.leader_id >= 0 for p in t.partitions) for t in answer.topics}
        for topic in answer.topics:
            if len(topic.partitions) > wanted[topic.name]:
                raise _Refused(
                    f"{topic.name} exists with {len(topic.partitions)} partitions,"
                    f" and was to have {wanted[topic.name]}"
                )
        for name, partitions in wanted.items():
            if led.get(name, 0) < partitions:
                return f"broker-{number} knows {led.get(name, 0)} leaders of {name}"
    return ""
