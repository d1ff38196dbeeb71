"""One member of a consumer group: what it has subscribed to, and what it is assigned.

Source: ConsumerGroupMember, MemberState of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from highwater.broker.coordinator import record_fields

Partitions = record_fields.Partitions
NOTHING: Partitions = {}
LEFT = -1
AWAY = -2
"""The epochs by which a member leaves: for good, or as a static member that comes back."""


class MemberState(IntEnum):
    """How far a member is on its way to its target, by the numbers of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has yet to give up partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have yet to give up."""
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class Classic:
    """What a member that still uses the classic protocol has told in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names, with the member's subscription in each."""

    @property
    def protocol(self) -> str:
        """The name of its first protocol, which JoinGroup answers."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member has told of itself; an empty regex means none."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, each once."""
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None
    """None for a member of the consumer protocol."""


@dataclass(frozen=True, slots=True)
class Current:
    """A member's epoch and partitions.  `previous_epoch`: with it, the member may repeat a request
    whose answer was lost."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)

    @property
    def held(self) -> Iterable[tuple[bytes, int]]:
        """All partitions that no other member may have yet."""
        for partitions in (self.assigned, self.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    yield topic_id, number

    def has_come_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    subscription: Subscription = Subscription()
    current: Current = Current()


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression matched."""

    topics: tuple[str, ...]
    version: int
    """The number of the metadata in which they were looked up."""
    timestamp_ms: int


def contains(outer: Partitions, inner: Partitions | None) -> bool:
    """Whether `outer` has all partitions of `inner`; not if those are unknown."""
    if inner is None:
        return False
    return all(numbers <= outer.get(topic, frozenset()) for topic, numbers in inner.items())


def overlap(one: Partitions, other: Partitions) -> bool:
    return any(numbers & other.get(topic, frozenset()) for topic, numbers in one.items())
