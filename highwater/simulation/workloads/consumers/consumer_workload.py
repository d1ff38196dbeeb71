"""A group of the consumer protocol (KIP-848) in the simulated workload, and its rules.

Three members, two of them static, share a topic whose partitions grow in number, and another topic
that comes and goes (`consumer_member`).  A caretaker changes the topics.  An onlooker asks all
brokers for the offsets, and the coordinator for the group's description.

* G3: a partition has one owner (`ownership`).
* G4: an answer is never below a commit that was acknowledged before the question, and a commit of a
  past epoch, or of a member that is out of the group, is refused.
* G5: epochs never fall; a member that is in time is not put out; and once the faults are over, and
  after a last crash, the group comes to rest within SETTLED_S: every partition of a subscribed
  topic has one owner, and the members own what ConsumerGroupDescribe shows.
* L1: at the end, when all members are silent, the group becomes empty.

A commit whose answer was lost may still be in flight.  So its member does not commit again before
its epoch has risen, or comes back as a new one: then late commits are refused, as they are before
others get its partitions.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Self

import trio

from highwater.simulation.workloads.consumers.consumer_client import (
    MOST_PARTITIONS,
    NAME,
    TOPIC,
    VISITING,
    ConsumerClient,
    Described,
)
from highwater.simulation.workloads.consumers.consumer_member import ConsumerMember
from highwater.simulation.workloads.consumers.ownership import SESSION_MS, Owners
from highwater.simulation.workloads.group_client import GroupClient
from highwater.simulation.workloads.group_workload import Groups, Player
from highwater.simulation.workloads.part import Shared, Topic, Works
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR
from highwater.world.sim import Kernel

MEMBERS = {"peer-1": "fixed-1", "peer-2": "fixed-2", "peer-3": None}
"""The names of the clients, and their instance ids."""
INTERVAL_MS = 300
FIRST_PARTITIONS = 4
SETTLED_S = 12.0
"""Longer than a session and a time to give up partitions, one after the other, and then some."""


class Consumers(Groups):
    """The members, what they know together, and the verdict."""

    name, kind = NAME, "consumer"
    flag = "consumer_groups"
    help = "A group of the consumer protocol (KIP-848)."
    topics = (Topic(TOPIC, FIRST_PARTITIONS, aimed=0),)
    client_kind, last = ConsumerClient, "last-onlooker"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ownership = Owners(self.rules, self.count)
        self.members: list[ConsumerMember] = []
        self.giving_up: set[str] = set()
        """The clients that keep partitions which they are to give up."""
        self._shown: Described | None = None
        self._copies = 3

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        return {"consumer_times_ms": (SESSION_MS, INTERVAL_MS)}

    @classmethod
    def of(cls, shared: Shared) -> Self:
        rules, count, errors, pace = shared.told
        part = cls(rules, count, errors, pace / 4)
        part.giving_up = shared.cluster.requested.giving_up
        part._copies = min(3, shared.cluster.shape.brokers)
        shared.cluster.tap.clients |= set(MEMBERS)
        return part

    def clients(self) -> Works:
        members = dict.fromkeys(MEMBERS, self.member)
        return {**members, "caretaker": self.care, "onlooker": self.stranger}

    def _one(self, client: GroupClient) -> Player:
        assert isinstance(client, ConsumerClient)
        client.instance = MEMBERS[client.name]
        one = ConsumerMember(self, self.ownership, self.giving_up, client)
        self.members.append(one)
        return one

    # -- the topics -----------------------------------------------------------------------------

    async def care(self, client: ConsumerClient) -> None:
        """Changes the topics until cancelled."""
        while True:
            await client.pause(1.0, 4.0)
            if self.resting:
                await trio.sleep_forever()
            there = Counter(tp.topic for tp in self.rules.partitions)
            try:
                if client.random.random() < 0.4 and there[TOPIC] < MOST_PARTITIONS:
                    await client.grow_topic(TOPIC, there[TOPIC] + 1)
                elif there[VISITING]:
                    await client.delete_topic(VISITING)
                else:
                    partitions = client.random.randint(1, 3)
                    await client.create_topic(VISITING, partitions, self._copies)
            except Failed as failed:
                self.errors[failed.name] += 1
            else:
                self.count["consumer topics changed"] += 1

    # -- descriptions ---------------------------------------------------------------------------

    async def stranger(self, client: GroupClient) -> None:
        assert isinstance(client, ConsumerClient)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().stranger, client)
            nursery.start_soon(self._describe_often, client)

    async def _describe_often(self, client: ConsumerClient) -> None:
        while True:
            await client.pause(0.1, 0.4)
            try:
                address = await client.coordinator(COORDINATOR, self.name)
                term, newest, before = self.ownership.term(), self.ownership.newest, self.now()
                shown = await client.describe(address)
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, self.name)
                continue
            if address[0] == term.host:
                self.ownership.described(term, newest, before, shown)
                self._shown = shown

    # -- the verdict ----------------------------------------------------------------------------

    async def settle(self) -> bool:
        """G5: the group comes to rest, and does so again when one of its members has crashed."""
        await self._settled("all is well")
        self.members[-1].retired = True
        await self._settled("a member has crashed")
        return True

    async def _settled(self, since: str) -> None:
        deadline = trio.current_time() + SETTLED_S
        self._shown = None
        while (wrong := self._unsettled()) is not None and trio.current_time() < deadline:
            await trio.sleep(0.1)
        if wrong is not None:
            self.rules.broken("G5", f"{SETTLED_S:g} s after {since}, {wrong}")
        self.count["consumer groups at rest"] += wrong is None

    def _unsettled(self) -> str | None:
        """The first thing that keeps the group from being at rest."""
        shown = self._shown
        if shown is None:
            return "nobody describes the group"
        there = [one for one in self.members if not one.retired]
        members = {one.member_id: one for one in there if one.is_settled}
        if len(members) < len(there):
            return f"only {sorted(members)} have come to their target; it is {shown}"
        if shown.state != "Stable" or set(shown.members) != set(members):
            return f"the members are {sorted(members)}, and the group is {shown}"
        owned = Counter[tuple[str, int]]()
        for member_id, (_, assigned) in shown.members.items():
            one = members[member_id]
            if assigned != one.owned:
                return f"{member_id} owns {sorted(one.owned)}, and the group is {shown}"
            owned.update((shown.names[topic_id], partition) for topic_id, partition in assigned)
        topics = {name for one in members.values() for name in one.topics}
        wanted = Counter((tp.topic, tp.partition) for tp in self.rules.partitions
                         if tp.topic in topics)  # fmt: skip
        if owned != wanted:
            return f"{sorted(wanted.elements())} are owned as {sorted(owned.elements())}: {shown}"
        return None
