"""A share-partition's state, and the interface of the one who keeps it.

A share-partition is one partition as one share group reads it.  Its leader knows which records are
available, acquired or done; what must outlive that leader is with the share coordinator.  It is
written there before a client is answered, and read when a broker begins to lead.

State is fenced twice.  A *leader epoch* below the last one that was seen is a deposed leader's:
FENCED_LEADER_EPOCH.  A *state epoch* below the last one comes from before the state was
initialized again: FENCED_STATE_EPOCH.  -1 stands for an epoch, or an offset, that is not known.

The group coordinator initializes and deletes state; a partition's leader reads and writes it.  A
call has one share-partition and ends with an answer, at the latest with REQUEST_TIMED_OUT; none
raises.

Source: KIP-932; org.apache.kafka.server.share.persister of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from highwater.kafka.errors import ErrorCode
from highwater.kafka.topic_ids import to_text

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
"""The start offset of state that no leader has written yet: share.auto.offset.reset decides."""
NO_COUNT: Final = -1


class DeliveryState(IntEnum):
    """The states of records that are stored; one that is acquired counts as available."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class SharePartitionKey(NamedTuple):
    group: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """The key by which FindCoordinator is asked, and to whose partition the state belongs."""
        return f"{self.group}:{to_text(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets, both ends included, whose records have one state and one delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """The result of a call; beside the error a call fills only what it is for."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    """The last leader's; of a summary."""
    start_offset: int = NO_OFFSET
    delivery_complete_count: int = NO_COUNT
    """How many records at or above the start offset are done; of a summary."""
    batches: tuple[StateBatch, ...] = ()
    """The records at or above the start offset that were delivered, in order; of a read."""


class Persister(Protocol):
    """Who keeps the state of share-partitions.  The codes of an answer, beside those of a request
    that found no share coordinator in time:

    INVALID_REQUEST             read or write: the state was never initialized, or was deleted
    FENCED_LEADER_EPOCH         read or write: another broker leads the partition by now
    FENCED_STATE_EPOCH          write or initialize: the state was initialized again
    UNKNOWN_TOPIC_OR_PARTITION  the topic was deleted
    """

    async def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> StateAnswer:
        """Makes the state, or makes it anew."""

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> StateAnswer:
        """The state; from then on writes of a lower leader epoch are refused."""

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> StateAnswer:
        """Adds batches to the state.  Two writes of a share-partition are kept in the order in
        which they were begun."""

    async def delete(self, key: SharePartitionKey) -> StateAnswer:
        """Removes the state; without an error if there is none."""

    async def summary(self, key: SharePartitionKey) -> StateAnswer:
        """Epochs, start offset and count, without fencing anybody."""
