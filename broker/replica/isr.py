"""The ISR of one partition, seen by its leader: committed in ZooKeeper, or pending there.

The leader proposes a new ISR and writes it to the partition's state znode under the version that it
last knew.  Until that write is settled, it is unknown which of the two ISRs is true.  So while a
change is pending the HW counts the *union* of both, the maximal ISR (KIP-497's rule, kept here for
ZooKeeper): a replica that may already be in the ISR can be elected, and must not miss acknowledged
records.  min.insync.replicas counts the committed ISR.  At most one change is pending.  A write
refused for its version means that the controller decided something newer: the pending change is
dropped, and no further one is proposed until the LeaderAndIsr with that decision has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.types import ANY_VERSION, ZkVersion


@dataclass(slots=True)
class Isr:
    """`members` keep ZooKeeper's order; `pending` is the proposal whose write is not settled."""

    members: tuple[int, ...] = ()
    zk_version: ZkVersion = ANY_VERSION
    pending: tuple[int, ...] | None = None
    refused: bool = False

    @property
    def maximal(self) -> tuple[int, ...]:
        """Every replica that may be in the ISR that ZooKeeper has now."""
        if self.pending is None:
            return self.members
        return self.members + tuple(b for b in self.pending if b not in self.members)

    @property
    def may_change(self) -> bool:
        return self.pending is None and not self.refused

    def propose(self, members: tuple[int, ...]) -> None:
        assert self.may_change
        self.pending = members

    def settle(self, zk_version: ZkVersion) -> None:
        """The pending change stands in ZooKeeper, at this version."""
        assert self.pending is not None
        self.members, self.pending, self.zk_version = self.pending, None, zk_version

    def refuse(self) -> None:
        """ZooKeeper holds something newer, which a LeaderAndIsr will bring.

        The proposal stays in the maximal ISR: an earlier attempt whose outcome was unknown may have
        stood for a while, and counting one replica too many only delays the HW, never moves it
        wrongly.
        """
        self.refused = True

    def reset(self, members: tuple[int, ...], zk_version: ZkVersion) -> None:
        """Takes the true ISR from a LeaderAndIsr."""
        self.members, self.zk_version, self.pending, self.refused = members, zk_version, None, False
