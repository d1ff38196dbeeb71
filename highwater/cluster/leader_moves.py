"""Admin requests for faults: they move a leader as an operator would.

The partition is reassigned to the same replicas in another order, so that the wanted one is the
preferred leader, and a preferred election follows.  Both go to the controller, past every proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import trio

from highwater.cluster.ask import PATIENT_S, ask, metadata
from highwater.cluster.interface import PATIENCE_S, Cluster, ClusterError, broker
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages

_RETRY = {ErrorCode.NOT_CONTROLLER, ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT}
_HARMLESS = {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    return [(h, int(p)) for h, _, p in (entry.rpartition(":") for entry in bootstrap.split(","))]


def reachable(cluster: Cluster) -> Iterator[tuple[int, tuple[str, int]]]:
    """The brokers that run and do not stand still, with their addresses."""
    for number, address in zip(cluster.brokers, addresses(cluster.direct_bootstrap), strict=True):
        if cluster.running(broker(number)) and not cluster.paused(broker(number)):
            yield number, address


async def controller_address(cluster: Cluster) -> tuple[str, int]:
    """The controller's direct address; raises ClusterError where none is known."""
    direct = addresses(cluster.direct_bootstrap)
    for _, address in reachable(cluster):
        try:
            answer = await metadata(address, [], PATIENT_S)
        except OSError:
            continue
        if answer.controller_id in cluster.brokers:
            return direct[cluster.brokers.index(answer.controller_id)]
    raise ClusterError("no broker knows a controller")


async def move_leader(
    cluster: Cluster,
    tp: TopicPartition,
    wanted: int,
    brokers: list[int],
    timeout_s: float = PATIENCE_S,
) -> None:
    """Asks until the controller agrees; else raises ClusterError with its last answer."""

    async def move(controller: tuple[str, int]) -> str | None:
        return await _reorder(controller, tp, wanted) or await _elect(controller, tp)

    problem = await _until_agreed(cluster, move, timeout_s)
    if problem:
        raise ClusterError(f"the leader of {tp} could not be moved to broker-{wanted}: {problem}")


async def elect_preferred(cluster: Cluster, timeout_s: float = PATIENCE_S) -> None:
    """Makes the first replica of every partition its leader, where it is in sync; raises
    ClusterError with the controller's last answer."""
    problem = await _until_agreed(cluster, _elect, timeout_s)
    if problem:
        raise ClusterError(f"the first replicas could not be made leaders: {problem}")


async def elect_first(cluster: Cluster, tp: TopicPartition, timeout_s: float = PATIENCE_S) -> None:
    """Makes the first replica of one partition its leader; raises ClusterError as above."""

    async def elect(controller: tuple[str, int]) -> str | None:
        return await _elect(controller, tp)

    problem = await _until_agreed(cluster, elect, timeout_s)
    if problem:
        raise ClusterError(f"the first replica of {tp} could not be made its leader: {problem}")


async def _until_agreed(
    cluster: Cluster, request: Callable[[tuple[str, int]], Awaitable[str | None]], timeout_s: float
) -> str | None:
    """Asks the controller until it has no error; gives its last one if that takes too long."""
    last = "no answer"
    with trio.move_on_after(timeout_s):
        while True:
            try:
                last = await request(await controller_address(cluster)) or ""
            except (OSError, ClusterError) as error:
                last = str(error)
            if not last:
                return None
            await trio.sleep(0.3)
    return last


async def _reorder(address: tuple[str, int], tp: TopicPartition, wanted: int) -> str | None:
    """Makes `wanted` the preferred leader; gives the error, or None."""
    answer = await metadata(address, [tp.topic])
    partition = next(
        (p for t in answer.topics for p in t.partitions if p.partition_index == tp.partition), None
    )
    if partition is None:
        return f"{tp} is unknown"
    old = list(partition.replica_nodes)
    if wanted not in old:
        return f"broker-{wanted} is no replica of {tp}"
    if old[0] == wanted:
        return None
    topic_class = messages.AlterPartitionReassignmentsRequest.ReassignableTopic
    request = messages.AlterPartitionReassignmentsRequest(
        timeout_ms=5000,
        topics=[
            topic_class(
                name=tp.topic,
                partitions=[
                    topic_class.ReassignablePartition(
                        partition_index=tp.partition,
                        replicas=[wanted, *(n for n in old if n != wanted)],
                    )
                ],
            )
        ],
    )
    result = await ask(address, request, 0, 8)
    codes = [result.error_code]
    codes += [p.error_code for t in result.responses for p in t.partitions]
    return _name(codes)


async def _elect(address: tuple[str, int], *tps: TopicPartition) -> str | None:
    """Asks for a preferred election, of all partitions where none is named; gives the error, or
    None."""
    asked = [
        messages.ElectLeadersRequest.TopicPartitions(topic=tp.topic, partitions=[tp.partition])
        for tp in tps
    ]
    request = messages.ElectLeadersRequest(
        election_type=0, topic_partitions=asked or None, timeout_ms=5000
    )
    result = await ask(address, request, 1, 8)
    codes = [result.error_code]
    codes += [p.error_code for t in result.replica_election_results for p in t.partition_result]
    return _name(codes)


def _name(codes: list[int]) -> str | None:
    bad = [c for c in codes if c not in _HARMLESS]
    return ErrorCode(bad[0]).name if bad else None
