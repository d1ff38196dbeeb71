"""A share group (KIP-932) in the simulated workload, and its rules.

Producers fill a topic, one of them in transactions (`share_transactions`), and three members of one
group hand its records out among themselves (`share_member`).  In most seeds the group reads
committed records only.  An onlooker asks for the group's offsets.  Locks last 1.5 s, a record is
delivered four times at most, and 20 records of a partition may be in flight.

* S1-S4: as clients see it (`share_ledger`), and as the leaders have it (`share_inspector`).
* T3: under read_committed no member gets a record of a transaction that is open or aborted.
* S5: the start offset does not fall, what is in flight keeps its bounds, and once the faults are
  over the members take everything within SETTLED_S: DescribeShareGroupOffsets shows no lag (but for
  what is behind a transaction that a careless power loss left open for ever).
* L1: at the end, when all members are silent, the group becomes empty.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import trio

from highwater.kafka.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.simulation.sim_history import History
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.sharing.share_client import (
    NAME,
    PARTITIONS,
    TOPIC,
    Answered,
    Given,
    Offsets,
    ShareClient,
    key_of,
)
from highwater.simulation.workloads.sharing.share_inspector import IN_FLIGHT, Inspector
from highwater.simulation.workloads.sharing.share_ledger import (
    DELIVERIES,
    LOCK_MS,
    Inside,
    Ledger,
)
from highwater.simulation.workloads.sharing.share_member import INTERVAL_MS, ShareMember
from highwater.simulation.workloads.sharing.share_transactions import ShareTransactions
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR
from highwater.simulation.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from highwater.simulation.cluster import SimCluster
    from highwater.world.sim import Kernel

MEMBERS = ("helper-1", "helper-2", "helper-3")
SESSION_MS = 2500
SETTLED_S = 30.0
SILENT_S = 15.0
COMMITTED_SHARE = 0.7
"""The share of seeds whose group reads committed records only."""
_NOT_THERE = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "TIMEOUT", "CONNECTION"})


class ShareGroups(Part):
    """The members, what they know together, and the verdict."""

    flag = "share_groups"
    help = "A share group (KIP-932)."
    topics = (Topic(TOPIC, PARTITIONS, aimed=PARTITIONS),)
    coordinated = GROUP_METADATA_TOPIC
    client_kind, last = ShareClient, "share-reader"

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.rules, self.count)
        self.ledger.key_of = self._key
        self.inspector = Inspector(self.ledger)
        self.transactions = ShareTransactions(self.rules, self.count, self.errors)
        self.ledger.passed_over = self.transactions.passed_over
        self.history = History(errors=self.errors)
        self._work = Workload(self.rules, self.history)
        self._configured = trio.Event()
        self._ids: dict[str, UUID | None] = {}
        self._shown: dict[int, Offsets] = {}
        self._cluster: SimCluster | None = None

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        return {"share_times_ms": (SESSION_MS, INTERVAL_MS, LOCK_MS),
                "share_limits": (IN_FLIGHT, DELIVERIES)}  # fmt: skip

    @classmethod
    def of(cls, shared: Shared) -> Self:
        part = super().of(shared)
        part._cluster = shared.cluster
        part.history.now = shared.history.now
        part.ledger.inside = part._inside
        random = shared.cluster.kernel.random("share isolation")
        part.read_committed(random.random() < COMMITTED_SHARE)
        part.transactions.bumps = shared.cluster.shape.epoch_bumps
        shared.cluster.looks.append(part.inspector.look)
        shared.cluster.rules.shortened.add(SHARE_GROUP_STATE_TOPIC)
        return part

    def read_committed(self, only: bool) -> None:
        """Chooses the group's share.isolation.level."""
        self.inspector.read_committed = self.transactions.read_committed = only

    def targets(self) -> list[TopicPartition]:
        states = [TopicPartition(SHARE_GROUP_STATE_TOPIC, number) for number in range(2)]
        return [*super().targets(), *states]

    def clients(self) -> Works:
        return {
            "filler": partial(self.fill, idempotent=True),
            "filler-2": partial(self.fill, idempotent=False),
            "filler-3": self.fill_in_transactions,
            **dict.fromkeys(MEMBERS, self.member),
            "share-onlooker": self.look_on,
        }

    # -- what is known --------------------------------------------------------------------------

    def _key(self, number: int) -> str:
        topic_id = self._ids.get(TOPIC)
        return "" if topic_id is None else str(key_of(topic_id, number))

    def _inside(self, host: str, member: str, number: int) -> Inside:
        assert self._cluster is not None
        topic_id = self._ids.get(TOPIC)
        node = self._cluster.nodes[int(host.rpartition("-")[2])]
        if node.services is None or topic_id is None:
            return Inside(None, None)
        share = node.services.share
        led = share.led.get(key_of(topic_id, number))
        return Inside(led, share.sessions._sessions.get((NAME, member)))

    def read(self, member: str, given: Given, answer: Answered) -> None:
        """Checks the records that a member was sent."""
        tp = TopicPartition(TOPIC, given.partition)
        for offset in range(given.first, given.last + 1):
            place = given.partition, offset
            if place in answer.markers:
                continue
            value = answer.values.get(place)
            if value is None:
                self.rules.broken("S1", f"{tp}@{offset} is {member}'s, and was not sent to it")
                return
            self.rules.consumed(tp, offset, value)
            ours = self.transactions.given(member, tp, offset, value)
            if not ours and value not in self.history.sent:
                self.rules.broken("C7", f"{tp}@{offset} holds {value!r}, which nobody sent")

    # -- who takes part -------------------------------------------------------------------------

    async def fill(self, client: SimClient, *, idempotent: bool) -> None:
        tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        produce = partial(
            self._work.produce, client, tps, idempotent=idempotent, rate=6.0 * self.pace
        )
        await self._until_rest(client, produce)

    async def fill_in_transactions(self, client: ShareClient) -> None:
        await self._until_rest(client, partial(self.transactions.fill, client, self.pace))

    async def _until_rest(self, client: SimClient, work: Callable[[], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            while not self.resting:
                await client.sleep(0.1)
            nursery.cancel_scope.cancel()

    async def member(self, client: ShareClient) -> None:
        """Plays a member until cancelled."""
        await self._configured.wait()
        one = ShareMember(self, client)
        while True:
            try:
                await one.turn()
            except Failed as failed:
                self.errors[failed.name] += 1
                if failed.name in _NOT_THERE:
                    client.lose(COORDINATOR, NAME)
                    for number in range(PARTITIONS):
                        client.forget(TopicPartition(TOPIC, number))
                one.refused(failed.name)
                await client.pause(0.02, 0.2)

    async def look_on(self, client: ShareClient) -> None:
        """Sets the group's properties, and asks for its offsets until cancelled."""
        while not self._configured.is_set():
            try:
                self._ids[TOPIC] = await client.topic_id()
                only = "read_committed" if self.inspector.read_committed else "read_uncommitted"
                await client.configure(
                    share_auto_offset_reset="earliest", share_isolation_level=only
                )
                self._configured.set()
            except Failed as failed:
                self.errors[failed.name] += 1
                await client.pause()
        while True:
            await client.pause(0.1, 0.4)
            try:
                self._shown = await client.offsets()
                self.count["share offsets described"] += 1
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, NAME)

    # -- the verdict ----------------------------------------------------------------------------

    async def settle(self) -> bool:
        """S5: the members take everything."""
        deadline = trio.current_time() + SETTLED_S
        self._shown = {}
        while not self._drained() and trio.current_time() < deadline:
            await trio.sleep(0.1)
        if not self._drained():
            self.rules.broken(
                "S5", f"{SETTLED_S:g} s after all is well, the group has {self._shown}"
            )
        self.count["share groups drained"] += self._drained()
        return True

    def _drained(self) -> bool:
        return len(self._shown) == PARTITIONS and all(
            shown.lag <= self.transactions.behind(number) or self._is_empty(number)
            for number, shown in self._shown.items()
        )

    def _is_empty(self, number: int) -> bool:
        """Whether a partition has no record; then the group has no offset there."""
        truth = self.rules.partitions.get(TopicPartition(TOPIC, number))
        return truth is not None and truth.exposed == 0

    def sum_up(self) -> None:
        """S1: every acknowledged record was given to a member, or delivered as often as may be, or
        the group does not get it."""
        for (tp, offset), value in sorted(self.history.acked.items()):
            place = tp.partition, offset
            there = self.ledger.locks.get(place) or self.ledger.may_end(place)
            out_of_reach = self.ledger.ever_lost(place) or not self.transactions.reaches(tp, offset)
            if not there and not out_of_reach:
                self.rules.broken("S1", f"{tp}@{offset} {value!r} was given to nobody")
        self.transactions.sum_up(self.ledger)
        self.count["share records looked at"] = self.inspector.looks

    async def judge(self, client: ShareClient) -> None:
        """Checks that silent members are no longer in the group."""
        deadline, found = trio.current_time() + SILENT_S, "nothing"
        while trio.current_time() < deadline:
            try:
                state, members = await client.described()
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, NAME)
                found = str(failed)
            else:
                if not members and state in ("Empty", "Dead"):
                    self.count["share groups empty at the end"] += 1
                    return
                found = f"{state} with {members} members"
            await client.sleep(0.2)
        after = f"{SILENT_S:g} s after its members fell silent"
        self.rules.broken("L1", f"{after}, {NAME} is {found}")
