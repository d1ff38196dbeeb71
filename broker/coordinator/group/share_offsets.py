"""What administrators do with the offsets of share groups: a part of the group coordinator.

A share group has no committed offsets; each of its share-partitions has a start offset, which is
part of the state at the share coordinator.  To alter it, the state is initialized anew; to delete
it, the state is deleted, and initialized when a member comes.  Either is refused while the group
has members.

Source: GroupCoordinatorService, GroupMetadataManager of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from highwater.broker.coordinator.group.consumer.members import Partitions
from highwater.broker.coordinator.group.share_groups import (
    Place,
    ShareGroups,
    empty_group,
    partitions_of,
)
from highwater.broker.share.persister import StateAnswer
from highwater.kafka.errors import ErrorCode
from highwater.kafka.topic_ids import NO_ID


class Result(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = NO_ID


_UNKNOWN = Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
_NO_STATE = Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group has no offset to delete there")


class ShareOffsets(ShareGroups):
    def initialized_share_partitions(self, group_id: str) -> Partitions:
        """The share-partitions of a group that have state; raises ApiError, but not where there is
        no such group."""
        self.check_share_groups()
        kept = self._named(group_id).share_groups.get(group_id)
        if kept is None or kept.committed is None:
            return {}
        return kept.committed.state_topics.initialized

    async def alter_share_offsets(
        self, group_id: str, wanted: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], Result]:
        """Sets start offsets, by topic and partition; raises ApiError."""
        self.check_share_groups()
        shard = self._named(group_id)
        kept, group = self.share_group_for(shard, group_id, make=True)
        try:
            empty_group(group)
            results: dict[tuple[str, int], Result] = {}
            offsets: dict[Place, int] = {}
            for name, starts in wanted.items():
                topic = self.topics.topic(name)
                for number, start in starts.items():
                    if topic is None or not 0 <= number < topic.partitions:
                        results[name, number] = _UNKNOWN
                    else:
                        results[name, number] = Result(topic_id=topic.topic_id)
                        offsets[topic.topic_id, number] = start
            if not offsets:
                return results
            parts = partitions_of(offsets)
            if kept.group is None:
                await self.store(shard, kept, self.share_steps(group).initializing(parts))
            async with self.only_one(kept, parts) as group:
                await self.store(shard, kept, self.share_steps(group).initializing(parts))
                answers = await self.initialize(shard, kept, parts, group.epoch, offsets)
        finally:
            shard.drop_share_group_if_unused(kept)
        for where, result in results.items():
            answer = answers.get((result.topic_id, where[1]))
            if answer is not None and answer.error:
                results[where] = Result(answer.error, answer.message, result.topic_id)
        return results

    async def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, Result]:
        """Deletes the state of these topics; raises ApiError."""
        self.check_share_groups()
        shard = self._named(group_id)
        kept, group = self.share_group_for(shard, group_id, make=False)
        empty_group(group)
        known, results = group.state_topics, dict[str, Result]()
        parts: dict[bytes, frozenset[int]] = {}
        for name in topics:
            topic = self.topics.topic(name)
            if topic is None:
                results[name] = _UNKNOWN
            elif topic.topic_id in known.initialized:
                parts[topic.topic_id] = known.initialized[topic.topic_id]
                results[name] = Result(topic_id=topic.topic_id)
            elif topic.topic_id in known.deleting:
                parts |= self.with_state([topic.topic_id])
                results[name] = Result(topic_id=topic.topic_id)
            else:
                results[name] = _NO_STATE
        if not parts:
            return results
        async with self.only_one(kept, parts) as group:
            steps = self.share_steps(group)
            await self.store(shard, kept, steps.deleting(parts))
            answers = await self.for_each(group_id, parts, self.persister.delete)
            failed = {place[0]: answer for place, answer in answers.items() if answer.error}
            await self.store(shard, kept, steps.forgotten(parts.keys() - failed.keys()))
        for name, result in results.items():
            if result.topic_id in failed:
                answer = failed[result.topic_id]
                results[name] = Result(answer.error, answer.message, result.topic_id)
        return results

    async def summaries(self, group_id: str, parts: Partitions) -> dict[Place, StateAnswer]:
        """Epochs, start offsets and counts of share-partitions, of any group."""
        return await self.for_each(group_id, parts, self.persister.summary)
