"""Many partitions in one request, and the wait until every broker knows their leaders."""

from __future__ import annotations

from typing import Any

import trio

from highwater.bench.figures.sides import BenchFailed, until
from highwater.cluster.ask import ask, metadata
from highwater.cluster.leader_moves import controller_address
from highwater.cluster.processes.process_cluster import ProcessCluster
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire import messages

WAIT_S = 240
LOOK_EVERY_S = 0.1
_CREATE_TOPICS = 4


async def create(cluster: ProcessCluster, topic: str, partitions: int, replicas: int) -> None:
    topic_class = messages.CreateTopicsRequest.CreatableTopic
    request = messages.CreateTopicsRequest(
        topics=[
            topic_class(
                name=topic,
                num_partitions=partitions,
                replication_factor=replicas,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=WAIT_S * 1000,
        validate_only=False,
    )
    answer = await ask(await controller_address(cluster), request, _CREATE_TOPICS, WAIT_S)
    code = ErrorCode(answer.topics[0].error_code)
    if code is not ErrorCode.NONE:
        raise BenchFailed(f"{partitions} partitions could not be created: {code.name}")


async def until_in_sync(address: tuple[str, int], topic: str, number: int, within_s: float) -> None:
    """Waits until a broker is in the ISR of all partitions; the one at the address is asked."""

    async def in_sync() -> bool:
        places = (await metadata(address, [topic], timeout_s=30)).topics[0].partitions
        return all(number in place.isr_nodes for place in places)

    await until(in_sync, f"broker-{number} is in every ISR of {topic}", within_s, LOOK_EVERY_S)


async def until_whole(address: tuple[str, int], topics: list[str], within_s: float) -> None:
    """Waits until all replicas of these topics are in sync; the one at the address is asked."""

    async def whole() -> bool:
        answer = await metadata(address, topics, timeout_s=30)
        places = [place for topic in answer.topics for place in topic.partitions]
        return all(len(place.isr_nodes) == len(place.replica_nodes) for place in places)

    await until(whole, f"all replicas of {', '.join(topics)} are in sync", within_s, LOOK_EVERY_S)


async def until_led(cluster: ProcessCluster, partitions: int, live: set[int]) -> None:
    """Waits until every live broker names a live leader for so many partitions."""
    waiting = sorted(live)
    seen = 0
    with trio.move_on_after(WAIT_S):
        while waiting:
            seen = _led(await _metadata(cluster, waiting[0]), live)
            if seen >= partitions:
                waiting.pop(0)
            else:
                await trio.sleep(LOOK_EVERY_S)
        return
    number = waiting[0]
    raise BenchFailed(f"broker-{number} names leaders of {seen} partitions, not {partitions}")


async def _metadata(cluster: ProcessCluster, number: int) -> Any:
    try:
        return await metadata(cluster.address(number), None, timeout_s=10)
    except OSError:
        return None


def _led(answer: Any, live: set[int]) -> int:
    if answer is None:
        return 0
    return sum(p.leader_id in live for t in answer.topics for p in t.partitions)
