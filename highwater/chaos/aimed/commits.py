"""Follows the offsets that groups commit in an application's input.

They are read from __consumer_offsets under read_committed: so the groups need not be known
beforehand, and an offset counts from the moment when its transaction is committed.  Source:
GroupMetadataManager.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import trio
from confluent_kafka import KafkaException, TopicPartition

from highwater.broker.coordinator.group.records import BadRecordError, OffsetRecord, decode
from highwater.chaos.aimed.following import follow
from highwater.chaos.aimed.windows import Windows
from highwater.client_calls import SOON_S, apart
from highwater.kafka.topic_names import GROUP_METADATA_TOPIC

_OFFSET = struct.Struct(">q")
_ASK_S = 10.0


@dataclass(slots=True)
class CommitWatcher:
    bootstrap: str
    topic: str
    """The application's input."""
    windows: Windows
    left: list[str] = field(default_factory=list)
    """Calls that did not return."""

    async def watch(self) -> None:
        """Reads commits until cancelled."""
        phase = f"watching {GROUP_METADATA_TOPIC}"

        async def places(consumer: Any) -> list[TopicPartition]:
            """Waits for the partitions of __consumer_offsets: if the harness did not make that
            topic, the first group does."""
            while True:
                with trio.CancelScope(shield=True):
                    try:
                        known = await apart(phase, SOON_S, consumer.list_topics, None, _ASK_S)
                        if there := known.topics.get(GROUP_METADATA_TOPIC):
                            return [
                                TopicPartition(GROUP_METADATA_TOPIC, number, 0)
                                for number in there.partitions
                            ]
                    except KafkaException:
                        pass  # the brokers are away: try again
                await trio.sleep(0.2)

        await follow(phase, self.bootstrap, "read_committed", places, self._take, self.left)

    def _take(self, message: Any) -> None:
        try:
            record = decode(message.key(), None)
        except BadRecordError:
            return
        if isinstance(record, OffsetRecord) and record.tp.topic == self.topic:
            value = message.value()
            # the offset is the first field in every version, so in later ones, too
            offset = None if value is None else _OFFSET.unpack_from(value, 2)[0]
            self.windows.committed(record.group_id, record.tp.partition, offset)
