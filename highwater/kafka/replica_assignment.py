"""The replicas of a partition, at rest and while it moves (KIP-455)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from highwater.kafka.types import BrokerId


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition; during a reassignment, target and origin together (KIP-455).

    Target replicas come first in `replicas`, in their order; `adding` are those not yet in the
    origin, and `removing` those no longer in the target.
    """

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        return tuple(r for r in self.replicas if r not in self.adding)

    def without(self, unwanted: Collection[BrokerId]) -> ReplicaAssignment:
        """The assignment as if it had never named these brokers."""
        return ReplicaAssignment(*(tuple(r for r in some if r not in unwanted) for some in self))

    def reassign_to(self, target: tuple[BrokerId, ...]) -> ReplicaAssignment:
        """The assignment while moving to `target`; a running move's origin is kept."""
        origin = self.origin
        return ReplicaAssignment(
            tuple(dict.fromkeys((*target, *origin))),
            tuple(r for r in target if r not in origin),
            tuple(r for r in origin if r not in target),
        )


Reassignment = ReplicaAssignment
"""ListPartitionReassignments's answer for one partition."""
