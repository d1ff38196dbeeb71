"""Creates a run's topics, through the controller, past every proxy."""

from __future__ import annotations

import trio

from highwater.chaos.clusters.api import Cluster, ClusterError
from highwater.chaos.clusters.ask import ask
from highwater.chaos.faults.admin import controller_address
from highwater.chaos.run_folder import TopicInfo
from highwater.common.errors import ErrorCode
from highwater.common.wire import messages

_DONE = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}


async def create_topics(cluster: Cluster, topics: list[TopicInfo], timeout_s: float = 20) -> None:
    """Asks until the controller made them all; ClusterError with its last answer."""
    topic_class = messages.CreateTopicsRequest.CreatableTopic
    request = messages.CreateTopicsRequest(
        topics=[
            topic_class(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    topic_class.CreatableTopicConfig(
                        name="min.insync.replicas", value=str(topic.min_insync_replicas)
                    )
                ],
            )
            for topic in topics
        ],
        timeout_ms=10000,
        validate_only=False,
    )
    last = "no answer"
    with trio.move_on_after(timeout_s):
        while True:
            try:
                answer = await ask(await controller_address(cluster), request, 4, 12)
                bad = [t for t in answer.topics if t.error_code not in _DONE]
                if not bad:
                    return
                last = f"{bad[0].name}: {ErrorCode(bad[0].error_code).name}"
            except (OSError, ClusterError) as error:
                last = str(error)
            await trio.sleep(0.2)
    raise ClusterError(f"the topics could not be created within {timeout_s:g} s: {last}")
