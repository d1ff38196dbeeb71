"""The calls of a member of a consumer group (KIP-848), one attempt each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from highwater.kafka.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    OffsetFetchRequest,
)
from highwater.simulation.workloads.group_client import GroupClient, Seat
from highwater.simulation.workloads.plain_client import Failed, check_code
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR

NAME, TOPIC, VISITING = "pool", "pooled", "visiting"
"""The group, its topic, and a topic that comes and goes.  No client writes to them."""
MOST_PARTITIONS = 10
"""Nobody makes more partitions of the topic (faults do not, either: `JointAdmin`)."""
REBALANCE_MS = 1500
LEAVES, AWAY = -1, -2
"""The epochs by which a member leaves for good, or as a static member that comes back."""

Place = tuple[UUID, int]
"""A topic's id, and a partition."""


class Report(NamedTuple):
    """What a heartbeat says; None stands for what has not changed."""

    member_id: str
    epoch: int
    owned: frozenset[Place] | None = None
    topics: tuple[str, ...] | None = None
    assignor: str | None = None

    @property
    def joins(self) -> bool:
        return self.epoch == 0


class Told(NamedTuple):
    """What a heartbeat is answered."""

    epoch: int
    interval_s: float
    assigned: frozenset[Place] | None
    """None where it has not changed."""


class Described(NamedTuple):
    """A group as ConsumerGroupDescribe shows it."""

    state: str
    epoch: int
    target_epoch: int
    members: dict[str, tuple[int, frozenset[Place]]]
    """Member id -> its epoch, and what it is assigned."""
    names: dict[UUID, str]


class ConsumerClient(GroupClient):
    """The calls of a member, and of those that look on."""

    group, topic = NAME, TOPIC
    commit_version = 9
    timeout_s = 1.0
    acts_for: Seat | None = None
    """The member that fetches offsets; none for those that look on."""

    async def topic_id(self) -> UUID | None:
        """The id of the group's topic; None while the broker that was asked does not know it."""
        if not self._ids.get(TOPIC):
            await self.refresh([TOPIC])
        return self._ids.get(TOPIC)

    async def beat(self, address: tuple[str, int], report: Report) -> Told:
        says_all = report.topics is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=report.member_id,
            member_epoch=report.epoch,
            instance_id=self.instance,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            subscribed_topic_names=None if report.topics is None else list(report.topics),
            subscribed_topic_regex=None,
            server_assignor=report.assignor,
            topic_partitions=None if report.owned is None else _by_topic(report.owned),
        )
        answer = await self._call(address, request, 1)
        check_code(answer.error_code)
        assigned = None if answer.assignment is None else _places(answer.assignment)
        return Told(int(answer.member_epoch), answer.heartbeat_interval_ms / 1000, assigned)

    async def committed(self, address: tuple[str, int], *, stable: bool = False) -> dict[int, int]:
        """The committed offset of every partition; -1: none."""
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topic = group.OffsetFetchRequestTopics
        seat = self.acts_for
        one = group(
            group_id=self.group,
            member_id=None if seat is None else seat.member_id,
            member_epoch=-1 if seat is None else seat.generation,
            topics=[topic(name=self.topic, partition_indexes=list(range(MOST_PARTITIONS)))],
        )
        request = OffsetFetchRequest(groups=[one], require_stable=stable)
        answer = (await self._call(address, request, 9)).groups[0]
        check_code(answer.error_code)
        found = answer.topics[0].partitions
        for p in found:
            check_code(p.error_code)
        return {p.partition_index: int(p.committed_offset) for p in found}

    async def described(self) -> tuple[str, int]:
        try:
            found = await self.describe(await self.coordinator(COORDINATOR, self.group))
        except Failed as failed:
            if failed.name == "GROUP_ID_NOT_FOUND":  # its records may have been lost
                return "Dead", 0
            raise
        return found.state, len(found.members)

    async def describe(self, address: tuple[str, int]) -> Described:
        request = ConsumerGroupDescribeRequest(
            group_ids=[self.group], include_authorized_operations=False
        )
        answer = (await self._call(address, request, 1)).groups[0]
        check_code(answer.error_code)
        return Described(
            str(answer.group_state),
            int(answer.group_epoch),
            int(answer.assignment_epoch),
            {
                str(m.member_id): (int(m.member_epoch), _places(m.assignment))
                for m in answer.members
            },
            {
                topic.topic_id: str(topic.topic_name)
                for member in answer.members
                for topic in member.assignment.topic_partitions
            },
        )


def _by_topic(owned: Iterable[Place]) -> list[Any]:
    numbers: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(owned):
        numbers.setdefault(topic_id, []).append(partition)
    topic = ConsumerGroupHeartbeatRequest.TopicPartitions
    return [topic(topic_id=topic_id, partitions=ps) for topic_id, ps in numbers.items()]


def _places(assignment: Any) -> frozenset[Place]:
    return frozenset(
        (topic.topic_id, int(partition))
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
