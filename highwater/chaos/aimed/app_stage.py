"""The objects of verbs that aim at an application: its copies, their doors, its windows, and what
the probes have found so far."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import trio

from highwater.chaos.aimed.doors import Doors
from highwater.chaos.aimed.windows import Windows
from highwater.chaos.aimed.wire import CopyWire
from highwater.chaos.app_processes import AppCluster
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.cluster.ask import ask
from highwater.cluster.faults.scene import ANY_COPY
from highwater.cluster.faults.stage import Led
from highwater.cluster.faults.workload_verbs import ChaosStage
from highwater.cluster.interface import ClusterError, broker_number
from highwater.cluster.links.link_rules import Rule
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import BadMessage

HIT, CLOSED, NOT_RUN = "hit", "closed", "not run"
WORKS_S: Final = 20.0
"""How long to wait for a copy to send something that can be held."""
EXCUSED_S: Final = 60.0
"""How long a client may take to pass an error on to its application."""
LEAVE_EVERY_S: Final = 1.0
LOOK_S: Final = 0.02
_LEAVE_VERSION: Final = 3


@dataclass(slots=True)
class Aim:
    """The means to aim at one copy: its traffic and its proxies."""

    wire: CopyWire
    doors: Doors


@dataclass(frozen=True, slots=True)
class Probe:
    """The end of one attempt to strike a copy in a window."""

    window: str
    target: str
    outcome: str
    told: str
    at: float = 0.0
    """When it struck, or else ended, by trio's clock."""
    inputs: Mapping[str, float] = field(default_factory=dict)
    """The ids that were in the window at the strike -> since when."""


class OutputControl:
    """The controls that `lose_unreplicated` needs of a workload, which here is the application."""

    def __init__(self, aims: dict[str, Aim]) -> None:
        self._aims = aims
        self._before: int | None = None
        self.held: list[tuple[Doors, Rule]] = []

    async def burst(self, rate: float) -> None:
        """Lets held messages go on, and counts what is acknowledged from now on.  The rate has no
        effect, because the application writes at its own pace."""
        self._before = self._alone()
        self.let_go()

    def let_go(self) -> None:
        for doors, rule in self.held:
            doors.links.release(rule)
        self.held = []

    def acked_by(self, process_prefix: str) -> int:
        """How many requests of acks=1 were acknowledged.  The first call after a burst gives the
        count at the burst, just before the cut: what was written in between may be lost, too."""
        before, self._before = self._before, None
        return self._alone() if before is None else before

    def _alone(self) -> int:
        return sum(aim.wire.alone for aim in self._aims.values())


@dataclass(slots=True, kw_only=True)
class AppStage(ChaosStage):
    workload: OutputControl
    deaths: DeathWitness
    apps: AppCluster
    windows: Windows
    output: str
    aims: dict[str, Aim]
    owners: dict[int, str]
    """Partition of the input -> the copy that committed there last."""
    probes: list[Probe] = field(default_factory=list)
    dead: set[tuple[str, str]] = field(default_factory=set)
    """(group, member id) of copies that were killed."""
    last_death: float = 0.0
    """When a broker or a copy died last, by trio's clock."""

    @property
    def lossy_partition(self) -> TopicPartition:
        """The partition of the output to which most is written."""
        acknowledged = self.acknowledged()
        most = max(acknowledged, key=lambda p: acknowledged[p], default=0)
        return TopicPartition(self.output, most)

    def targets(self, text: str, others_than: list[str] | None = None) -> list[str]:
        if text.strip().lower() != ANY_COPY:
            return ChaosStage.targets(self, text, others_than)
        running = [name for name in self.apps.copies if self.apps.running(name)]
        works = [name for name in running if name in self.owners.values()] or running
        if not works:
            raise ClusterError("no copy of the application runs")
        return [self.rng.choice(works)]

    def transactional_ids(self) -> dict[str, set[str]]:
        """Copy -> the transactional ids that it uses."""
        return {name: aim.wire.transactional_ids for name, aim in self.aims.items()}

    def produced(self) -> int:
        return sum(aim.wire.produced for aim in self.aims.values())

    def acks(self) -> frozenset[int]:
        """The values of acks in the copies' Produce requests."""
        return frozenset(acks for aim in self.aims.values() for acks in aim.wire.acks)

    def acknowledged(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for aim in self.aims.values():
            for partition, times in aim.wire.acknowledged.items():
                found[partition] = found.get(partition, 0) + times
        return found

    def excuse(self, copy: str) -> None:
        """Does not hold it against a copy if it ends soon: even a correct application may, after
        the error that it is about to see."""
        self.apps.copies[copy].excused_until = trio.current_time() + EXCUSED_S

    async def buries(self, copy: str) -> None:
        """Makes a killed copy's member leave its groups; if that fails, its session runs out."""
        self.last_death = trio.current_time()
        wire = self.aims[copy].wire
        self.dead |= {(group, wire.member_id) for group in wire.groups if wire.member_id}
        await self.leave_groups()

    async def leave_groups(self) -> None:
        """Sends LeaveGroup for all dead members, as removeMembersFromConsumerGroup of Java's Admin
        does."""
        for group in sorted({group for group, _ in self.dead}):
            identity = messages.LeaveGroupRequest.MemberIdentity
            members = [
                identity(member_id=member_id, group_instance_id=None)
                for of, member_id in sorted(self.dead)
                if of == group
            ]
            request = messages.LeaveGroupRequest(group_id=group, members=members)
            with suppress(OSError, BadMessage, ClusterError, trio.BrokenResourceError):
                (coordinator,) = self.targets(f"coordinator of group {group}")
                address = self.apps.address(broker_number(coordinator))
                await ask(address, request, _LEAVE_VERSION)

    async def keep_leaving(self) -> None:
        """Repeats `leave_groups` until cancelled, because a coordinator that takes over may not
        know that a member has left."""
        while True:
            await trio.sleep(LEAVE_EVERY_S)
            await self.leave_groups()

    async def wait_for_work(self) -> None:
        """Waits until every copy is a member again and one has committed since, or for WORKS_S."""
        with trio.move_on_after(WORKS_S):
            while not self._works():
                await trio.sleep(LOOK_S)

    def _works(self) -> bool:
        copies = [copy for copy in self.apps.copies.values() if copy.running]
        members = [(copy, w) for copy in copies if (w := self.aims[copy.name].wire).member_id]
        if any(wire.joined < copy.started for copy, wire in members):
            return False
        since = max((wire.joined for _, wire in members), default=0.0)
        commits = [aim.wire.committed[-1] for aim in self.aims.values() if aim.wire.committed]
        return not commits or max(commits) > since

    def window_of(self, window: str, copy: str) -> dict[str, float]:
        """The ids in a window that belong to this copy's partitions -> since when they are there.

        Ids from before the last death are left out: what that lost stays ahead for ever.
        """
        own = [p for p, name in self.owners.items() if name == copy]
        return self.windows.within(window, own, self.last_death)

    def died(self, number: int, led: Led) -> None:
        ChaosStage.died(self, number, led)
        self.last_death = trio.current_time()
