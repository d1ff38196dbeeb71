"""Groups and transactions, as their coordinators describe them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from highwater.agent.errors import ControlError
from highwater.cluster.ask import ask
from highwater.cluster.faults.stage import Stage
from highwater.cluster.interface import Cluster, ClusterError
from highwater.cluster.leader_moves import reachable
from highwater.kafka.client.retries import RETRIABLE, code_of
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages
from highwater.kafka.wire.messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)

GROUP = 0
"""FindCoordinator's key type for groups."""
PATIENCE_S = 10.0
"""How long a call waits for a coordinator that moves."""
DEAD = "Dead"
"""The state of a group that does not exist."""
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_EARLIEST, _LATEST = -2, -1
_NO_OFFSET = -1


class NotNow(ClusterError):
    """A coordinator is moving, loading or away: a later call may succeed."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    """Its instance id where it has one, else its member id, which begins with its client id."""
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Described:
    state: str
    members: tuple[Member, ...]
    coordinator: int
    shares: bool = False
    """Whether it is a share group (KIP-932), whose members have no partition to themselves."""

    def __str__(self) -> str:
        names = ", ".join(member.name for member in self.members)
        told = f"{self.state} with {len(self.members)} member{'s' * (len(self.members) != 1)}"
        told += f" ({names})" if names else ""
        if self.state == "PreparingRebalance":
            told += ": it waits until each of them has joined again, or has been away too long"
        elif self.state == "CompletingRebalance":
            told += ": it waits for the assignment of the member that leads it"
        elif self.state == "Reconciling":
            told += ": some of them have yet to give up partitions, or to take theirs"
        return told

    def reader(self, tp: TopicPartition) -> str:
        return ", ".join(m.name for m in self.members if tp in m.partitions) or "no member"


async def patiently(work: Callable[[], Any]) -> Any:
    """The result of `work`, tried again while coordinators move; ControlError where that lasts."""
    deadline = trio.current_time() + PATIENCE_S
    while True:
        try:
            return await work()
        except NotNow as error:
            if trio.current_time() > deadline:
                raise ControlError("timeout", str(error)) from error
            await trio.sleep(0.05)


async def group(stage: Stage, name: str) -> dict[str, Any]:
    """A group's state, members and lag; ControlError where there is no such group."""

    async def once() -> dict[str, Any]:
        found = await described(stage.cluster, name)
        committed, lag = await progress(stage, name, found)
        return {
            "group": name,
            "state": found.state,
            "members": len(found.members),
            "coordinator": found.coordinator,
            "committed": {str(tp): offset for tp, offset in sorted(committed.items())},
            "lag": {str(tp): behind for tp, behind in sorted(lag.items())},
            "total_lag": sum(lag.values()),
        }

    told: dict[str, Any] = await patiently(once)
    if told["state"] == DEAD:
        raise ControlError("not_found", f"no group {name!r}")
    return told


async def delete_group(stage: Stage, name: str) -> None:
    """Deletes a group without members; ControlError where it has members, or does not exist."""

    async def once() -> ErrorCode:
        number, address = await _coordinator(stage.cluster, name)
        request = messages.DeleteGroupsRequest(groups_names=[name])
        answer = await _asked(number, address, request, 1)
        return _code(answer.results[0].error_code, number)

    code = await patiently(once)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        raise ControlError("not_found", f"no group {name!r}")
    if code is not ErrorCode.NONE:
        raise ControlError("refused", f"the group {name} cannot be deleted: {code.name}")


async def described(cluster: Cluster, name: str) -> Described:
    """The group, of whichever protocol; its state is Dead where there is none."""
    number, address = await _coordinator(cluster, name)
    request = messages.DescribeGroupsRequest(groups=[name])
    found = (await _asked(number, address, request, 4)).groups[0]
    _code(found.error_code, number)
    if found.group_state == DEAD:
        return await _of_today(number, address, name)
    members = tuple(
        Member(m.group_instance_id or m.member_id, _assigned(m.member_assignment))
        for m in found.members
    )
    return Described(found.group_state, members, number)


async def _of_today(number: int, address: tuple[str, int], name: str) -> Described:
    """A group of the consumer protocol (KIP-848), or a share group: DescribeGroups lacks them."""
    offered = await _asked(number, address, messages.ApiVersionsRequest(), 0)
    keys = {entry.api_key for entry in offered.api_keys}
    for kind, version in ((ConsumerGroupDescribeRequest, 0), (ShareGroupDescribeRequest, 1)):
        if kind.API_KEY not in keys:
            continue
        request = kind(group_ids=[name], include_authorized_operations=False)
        found = (await _asked(number, address, request, version)).groups[0]
        if _code(found.error_code, number) is ErrorCode.NONE:
            shares = kind is ShareGroupDescribeRequest
            members = tuple(
                Member(
                    (None if shares else m.instance_id) or m.member_id,
                    frozenset(
                        TopicPartition(topic.topic_name, partition)
                        for topic in m.assignment.topic_partitions
                        for partition in topic.partitions
                    ),
                )
                for m in found.members
            )
            return Described(found.group_state, members, number, shares)
    return Described(DEAD, (), number)


def _assigned(assignment: bytes) -> frozenset[TopicPartition]:
    """The partitions of a member's assignment; none where it is not of the consumer protocol."""
    try:
        topics = messages.ConsumerProtocolAssignment.decode(assignment).assigned_partitions
    except (ValueError, struct.error):
        return frozenset()
    return frozenset(TopicPartition(name, p) for name, ps in topics for p in ps)


async def progress(
    stage: Stage, name: str, found: Described
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """What a group has committed, and how far it is behind.  A share group commits nothing: instead
    its start offsets, and how many records from there on are not done."""
    if not found.shares:
        committed = await committed_of(stage, name, found.coordinator)
        return committed, await lag_of(stage, committed)
    addresses = dict(reachable(stage.cluster))
    one = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[one(group_id=name, topics=None)])
    number = found.coordinator
    group = (await _asked(number, addresses.get(number), request, 1)).groups[0]
    _code(group.error_code, number)
    starts, lag = {}, {}
    for topic in group.topics:
        for p in topic.partitions:
            _code(p.error_code, number)
            if p.lag >= 0:
                tp = TopicPartition(topic.topic_name, p.partition_index)
                starts[tp], lag[tp] = p.start_offset, p.lag
    return starts, lag


async def committed_of(stage: Stage, name: str, coordinator: int) -> dict[TopicPartition, int]:
    addresses = dict(reachable(stage.cluster))
    request = messages.OffsetFetchRequest(group_id=name, topics=None)
    answer = await _asked(coordinator, addresses.get(coordinator), request, 4)
    _code(answer.error_code, coordinator)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset != _NO_OFFSET
    }


async def lag_of(stage: Stage, committed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets a group is behind the end, for every partition of the topics to which it has
    committed.  In a partition without a commit it counts from the log's start."""
    topics = {tp.topic for tp in committed}
    all_of = sorted(tp for tp in list(stage.zookeeper.replicas) if tp.topic in topics)
    ends = await _offsets(stage, all_of, _LATEST)
    starts = await _offsets(stage, [tp for tp in all_of if tp not in committed], _EARLIEST)
    return {tp: max(0, ends[tp] - committed.get(tp, starts.get(tp, 0))) for tp in all_of}


async def _offsets(
    stage: Stage, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        state = stage.zookeeper.partitions.get(tp)
        by_leader.setdefault(-1 if state is None else state.leader, []).append(tp)
    addresses = dict(reachable(stage.cluster))
    found: dict[TopicPartition, int] = {}
    topic_class = messages.ListOffsetsRequest.ListOffsetsTopic
    for leader, wanted in by_leader.items():
        topics = [
            topic_class(
                name=tp.topic,
                partitions=[
                    topic_class.ListOffsetsPartition(
                        partition_index=tp.partition, timestamp=timestamp
                    )
                ],
            )
            for tp in wanted
        ]
        request = messages.ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = await _asked(leader, addresses.get(leader), request, 2)
        for topic in answer.topics:
            for partition in topic.partitions:
                _code(partition.error_code, leader)
                found[TopicPartition(topic.name, partition.partition_index)] = partition.offset
    return found


async def open_transactions(stage: Stage) -> list[dict[str, Any]]:
    """The transactions that are not yet committed or aborted in all their partitions; NotNow where
    a coordinator does not answer."""
    asked = dict(reachable(stage.cluster))
    for tp, state in sorted(stage.zookeeper.partitions.items()):
        if tp.topic == "__transaction_state" and state.leader not in asked:
            told = f"{tp} has no leader"
            if state.leader >= 0:
                told = f"broker-{state.leader}, which leads {tp}, does not answer"
            raise NotNow(told)
    found: list[dict[str, Any]] = []
    for number, address in asked.items():
        answer = await _asked(number, address, messages.ListTransactionsRequest(), 0)
        _code(answer.error_code, number)
        open_ones = [t for t in answer.transaction_states if t.transaction_state in OPEN]
        topics = await _topics_of(number, address, [t.transactional_id for t in open_ones])
        found += [
            {
                "transactional_id": t.transactional_id,
                "state": t.transaction_state,
                "producer_id": t.producer_id,
                "topics": topics.get(t.transactional_id, []),
            }
            for t in open_ones
        ]
    return sorted(found, key=lambda t: str(t["transactional_id"]))


async def _topics_of(
    number: int, address: tuple[str, int], names: Sequence[str]
) -> dict[str, list[str]]:
    if not names:
        return {}
    request = messages.DescribeTransactionsRequest(transactional_ids=list(names))
    answer = await _asked(number, address, request, 0)
    return {
        state.transactional_id: sorted(topic.topic for topic in state.topics)
        for state in answer.transaction_states
    }


async def _coordinator(cluster: Cluster, name: str) -> tuple[int, tuple[str, int]]:
    """The number of the group's coordinator, and its address past the proxies."""
    addresses = dict(reachable(cluster))
    last = "no broker answers"
    for number, address in addresses.items():
        request = messages.FindCoordinatorRequest(key=name, key_type=GROUP)
        try:
            answer = await _asked(number, address, request, 2)
            _code(answer.error_code, number)
        except NotNow as error:
            last = str(error)
            continue
        if answer.node_id in addresses:
            return answer.node_id, addresses[answer.node_id]
        last = f"its coordinator, broker-{answer.node_id}, does not answer"
    raise NotNow(f"the group {name}: {last}")


async def _asked(number: int, address: tuple[str, int] | None, request: Any, version: int) -> Any:
    if address is None:
        raise NotNow(f"broker-{number} does not run" if number >= 0 else "there is no leader")
    try:
        return await ask(address, request, version)
    except (OSError, trio.BrokenResourceError) as error:
        raise NotNow(f"broker-{number} does not answer: {error}") from error


def _code(raw: int, number: int) -> ErrorCode:
    """The error code for this number; NotNow where a retry may help."""
    code = code_of(raw)
    if code in RETRIABLE:
        raise NotNow(f"broker-{number}: {code.name}")
    return code
