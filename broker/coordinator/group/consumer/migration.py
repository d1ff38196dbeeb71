"""When a group changes its protocol while it has members.

A consumer group may have members that still use the classic protocol (`classic_members`).  It comes
to that when a member of the consumer protocol joins a living classic group, and it ends when the
last such member has gone: a rolling restart moves a group either way, member by member.

Source: ConsumerGroupMigrationPolicy, GroupMetadataManager.validateOnlineDowngrade… of Kafka.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.members import Member


class MigrationPolicy(Enum):
    """group.consumer.migration.policy."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class BecomesClassic:
    """The members with which a group becomes a classic one: those that it has `without` some, and
    the one that joins in the place of a static member."""

    without: tuple[str, ...]
    joins: Member | None = None
    rebalances: bool = True
    """False where the members may stay with their partitions."""


def may_become_classic(
    group: ConsumerGroup,
    leaving: Collection[str],
    policy: MigrationPolicy,
    most: int,
    joining: int = 0,
) -> bool:
    """Whether the group becomes a classic one when these members leave, and others join by the
    classic protocol: nobody uses the consumer protocol then.  `most` is group.max.size."""
    newer = sum(group.members[m].subscription.classic is None for m in leaving)
    left = len(group.members) - len(leaving) + joining
    only_classic = len(group.members) - group.classic_members == newer
    return policy.downgrades and only_classic and 0 < left <= most
