"""The calls of a member of a share group (KIP-932), one attempt each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from highwater.broker.share.persister import SharePartitionKey
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    DescribeShareGroupOffsetsRequest,
    IncrementalAlterConfigsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from highwater.kafka.wire.records import batches, records_of_batch
from highwater.simulation.workloads.plain_client import Failed, check_code
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR
from highwater.simulation.workloads.transactional.transactions_client import TxnClient

NAME, TOPIC, PARTITIONS = "helpers", "handed-out", 2
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
VERSION, LEAVES, CLOSES = 2, -1, -1
_GROUP_RESOURCE = 32

Place = tuple[int, int]
"""A partition, and an offset in it."""


class Ack(NamedTuple):
    """What a member says of the records of one range."""

    partition: int
    first: int
    last: int
    types: tuple[int, ...]
    """One for all records, or one for each."""

    def places(self) -> list[tuple[Place, int]]:
        offsets = range(self.first, self.last + 1)
        types = self.types if len(self.types) > 1 else self.types * len(offsets)
        return [((self.partition, at), kind) for at, kind in zip(offsets, types, strict=True)]


class Given(NamedTuple):
    """A range of records that a fetch was answered."""

    partition: int
    first: int
    last: int
    times: int


class Answered(NamedTuple):
    """The answer to a ShareFetch or a ShareAcknowledge."""

    given: list[Given]
    values: dict[Place, bytes]
    markers: set[Place]
    """What was sent that is no record: the ends of transactions."""
    errors: dict[int, str]
    """Partition -> the error of its fetch."""
    acks: dict[int, int]
    """Partition -> the error code of its acknowledgements, 0 for none."""


class Offsets(NamedTuple):
    start: int
    lag: int


class ShareClient(TxnClient):
    """The calls of a member, and of those that look on."""

    timeout_s = 1.0

    async def topic_id(self) -> UUID:
        found = self._ids.get(TOPIC)
        if not found:
            await self.refresh([TOPIC])
            found = self._ids.get(TOPIC)
        if not found:
            raise Failed("UNKNOWN_TOPIC_ID")
        return found

    async def leader(self, partition: int) -> tuple[str, int]:
        return (await self._leader(TopicPartition(TOPIC, partition)))[0]

    def hang_up(self) -> None:
        """Ends all connections, as a process that dies."""
        for connection in self._connections.values():
            connection.close()

    # -- the group ------------------------------------------------------------------------------

    async def beat(self, member_id: str, epoch: int) -> tuple[int, frozenset[int] | None]:
        """Gives the member's epoch, and its partitions, None where they have not changed."""
        request = ShareGroupHeartbeatRequest(
            group_id=NAME,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=[TOPIC] if epoch == 0 else None,
        )
        answer = await self._call(await self.coordinator(COORDINATOR, NAME), request, 1)
        check_code(answer.error_code)
        if answer.assignment is None:
            return int(answer.member_epoch), None
        found = [p for topic in answer.assignment.topic_partitions for p in topic.partitions]
        return int(answer.member_epoch), frozenset(found)

    async def described(self) -> tuple[str, int]:
        """The group's state, and how many members it has."""
        request = ShareGroupDescribeRequest(group_ids=[NAME], include_authorized_operations=False)
        answer = await self._call(await self.coordinator(COORDINATOR, NAME), request, 1)
        group = answer.groups[0]
        check_code(group.error_code)
        return str(group.group_state), len(group.members)

    async def offsets(self) -> dict[int, Offsets]:
        asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        topic = asked.DescribeShareGroupOffsetsRequestTopic
        named = [topic(topic_name=TOPIC, partitions=list(range(PARTITIONS)))]
        request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=NAME, topics=named)])
        answer = await self._call(await self.coordinator(COORDINATOR, NAME), request, 1)
        group = answer.groups[0]
        check_code(group.error_code)
        found = {}
        for p in group.topics[0].partitions:
            check_code(p.error_code)
            found[p.partition_index] = Offsets(int(p.start_offset), int(p.lag))
        return found

    async def configure(self, **settings: str) -> None:
        """Sets the group's properties."""
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            kind.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = kind(resource_type=_GROUP_RESOURCE, resource_name=NAME, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._call(self.random.choice(self._bootstrap), request, 1)
        check_code(answer.responses[0].error_code)

    # -- records --------------------------------------------------------------------------------

    async def fetch(  # type: ignore[override]
        self,
        address: tuple[str, int],
        member_id: str,
        epoch: int,
        added: Collection[int],
        forgotten: Collection[int],
        acks: Sequence[Ack] = (),
        *,
        record_limit: bool = False,
    ) -> Answered:
        topic_id = await self.topic_id()
        topic, gone = ShareFetchRequest.FetchTopic, ShareFetchRequest.ForgottenTopic
        named = _named(topic.FetchPartition, added, acks)
        request = ShareFetchRequest(
            group_id=NAME,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=0 if epoch == CLOSES else 300,
            min_bytes=1,
            max_bytes=1 << 16,
            max_records=self.random.choice((1, 3, 10, 100)),
            batch_size=self.random.choice((1, 100)),
            share_acquire_mode=int(record_limit),
            topics=[topic(topic_id=topic_id, partitions=named)] if named else [],
            forgotten_topics_data=(
                [gone(topic_id=topic_id, partitions=sorted(forgotten))] if forgotten else []
            ),
        )
        answer = await self._call(address, request, VERSION)
        check_code(answer.error_code)
        found = Answered([], {}, set(), {}, {})
        for p in (p for t in answer.responses for p in t.partitions):
            number = p.partition_index
            if p.error_code:
                found.errors[number] = _name(p.error_code)
            found.acks[number] = p.acknowledge_error_code
            data = memoryview(bytes(p.records or b""))
            for header in batches(data):
                if header.is_control:
                    found.markers.add((number, header.base_offset))
                    continue
                for record in records_of_batch(data, header):
                    found.values[number, record.offset] = bytes(record.value or b"")
            found.given.extend(
                Given(number, int(a.first_offset), int(a.last_offset), int(a.delivery_count))
                for a in p.acquired_records
            )
        return found

    async def acknowledge(
        self,
        address: tuple[str, int],
        member_id: str,
        epoch: int,
        acks: Sequence[Ack],
        *,
        renews: bool = False,
    ) -> Answered:
        topic_id = await self.topic_id()
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        named = _named(topic.AcknowledgePartition, (), acks)
        request = ShareAcknowledgeRequest(
            group_id=NAME,
            member_id=member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[topic(topic_id=topic_id, partitions=named)] if named else [],
        )
        answer = await self._call(address, request, VERSION)
        check_code(answer.error_code)
        acked = {p.partition_index: p.error_code for t in answer.responses for p in t.partitions}
        return Answered([], {}, set(), {}, acked)


def key_of(topic_id: UUID, partition: int) -> SharePartitionKey:
    return SharePartitionKey(NAME, topic_id.bytes, partition)


def _named(part: Any, added: Collection[int], acks: Sequence[Ack]) -> list[Any]:
    return [
        part(
            partition_index=p,
            acknowledgement_batches=[
                part.AcknowledgementBatch(
                    first_offset=ack.first, last_offset=ack.last, acknowledge_types=list(ack.types)
                )
                for ack in sorted(acks)
                if ack.partition == p
            ],
        )
        for p in sorted({*added, *(ack.partition for ack in acks)})
    ]


def _name(code: int) -> str:
    try:
        check_code(code)
    except Failed as failed:
        return failed.name
    return ""
