"""The calls of a group's member (the classic protocol), one attempt each."""

from __future__ import annotations

from typing import Any, NamedTuple

from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from highwater.simulation.workloads.plain_client import check_code
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR
from highwater.simulation.workloads.transactional.transactions_client import TxnClient

NAME, TOPIC = "crew", "crewed"
"""No client writes to it: its offsets are only numbers."""
PARTITIONS = 4
SESSION_MS, REBALANCE_MS = 2000, 2000


class Seat(NamedTuple):
    """A member's place in one generation."""

    member_id: str
    generation: int
    partitions: tuple[int, ...]


class GroupClient(TxnClient):
    """The calls of a member, one attempt each."""

    group, topic = NAME, TOPIC
    instance: str | None = None
    """group.instance.id, of a static member."""
    session_ms, protocol_type = SESSION_MS, "simulated"
    commit_version = 7

    def join_request(self, member_id: str) -> Any:
        offered = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[offered(name=name, metadata=data) for name, data in self.protocols()],
        )

    def protocols(self) -> list[tuple[str, bytes]]:
        """Names and subscriptions, the preferred one first."""
        return [("turns", b"")]

    async def join(self, member_id: str) -> tuple[str, int, list[str]]:
        """Joins; gives member id, generation, and to the leader all members."""
        request = self.join_request(member_id)
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return str(answer.member_id), -1, []
        check_code(answer.error_code)
        leads = answer.leader == answer.member_id
        members = [str(m.member_id) for m in answer.members] if leads else []
        return str(answer.member_id), int(answer.generation_id), members

    async def sync(self, seat: Seat, assigned: dict[str, list[int]]) -> Seat:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=self.instance,
            assignments=[
                assignment(member_id=who, assignment=bytes(ps)) for who, ps in assigned.items()
            ],
        )
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 3)
        check_code(answer.error_code)
        return seat._replace(partitions=tuple(bytes(answer.assignment)))

    async def heartbeat(self, seat: Seat) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=self.instance,
        )
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 3)
        check_code(answer.error_code)

    async def leave(self, member_id: str) -> None:
        request = LeaveGroupRequest(group_id=self.group, member_id=member_id)
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 2)
        check_code(answer.error_code)

    async def commit(self, seat: Seat, partition: int, offset: int) -> None:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        place = topic.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=seat.generation,
            member_id=seat.member_id,
            group_instance_id=self.instance,
            topics=[topic(name=self.topic, partitions=[place])],
        )
        address = await self.coordinator(COORDINATOR, self.group)
        answer = await self._call(address, request, self.commit_version)
        check_code(answer.topics[0].partitions[0].error_code)

    async def committed(self, address: tuple[str, int], *, stable: bool = False) -> dict[int, int]:
        """The committed offset of every partition; -1: none."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=self.group,
            topics=[topic(name=self.topic, partition_indexes=list(range(PARTITIONS)))],
            require_stable=stable,
        )
        answer = await self._call(address, request, 7)
        check_code(answer.error_code)
        for p in answer.topics[0].partitions:
            check_code(p.error_code)
        return {p.partition_index: int(p.committed_offset) for p in answer.topics[0].partitions}

    async def described(self) -> tuple[str, int]:
        """The group's state, and how many members it has."""
        request = DescribeGroupsRequest(groups=[self.group], include_authorized_operations=False)
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 5)
        check_code(answer.groups[0].error_code)
        return str(answer.groups[0].group_state), len(answer.groups[0].members)

    def brokers(self) -> list[tuple[str, int]]:
        return list(self._bootstrap)
