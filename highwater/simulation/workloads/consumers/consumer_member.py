"""One member of a consumer group through all its lives: a client as KIP-848 wants it, and worse.

It joins with epoch 0 and a member id of its own, sends heartbeats at the interval that it is told,
keeps what it is to give up for a while (now and then for longer than the rebalance time-out), takes
what is new only then, and reports what it owns at once.  It says all again after an error.  Between
heartbeats it commits.

Now and then it leaves, crashes and comes back under another member id, sleeps for longer than its
session and commits before it learns that it was put out, changes its subscription, or ignores an
answer, which it then asks for again in its previous epoch.  Once the faults are over it does none
of this, but what it keeps it keeps.
"""

from __future__ import annotations

import trio

from highwater.simulation.workloads.consumers.consumer_client import (
    AWAY,
    LEAVES,
    TOPIC,
    VISITING,
    ConsumerClient,
    Place,
    Report,
    Told,
)
from highwater.simulation.workloads.consumers.ownership import PUT_OUT, Call, Life, Owners
from highwater.simulation.workloads.group_client import Seat
from highwater.simulation.workloads.group_workload import Groups
from highwater.simulation.workloads.plain_client import UNKNOWN_OUTCOME, Failed
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR

SUBSCRIPTIONS = ((TOPIC,), (TOPIC, VISITING), (TOPIC, VISITING), (VISITING,))
ASSIGNORS = ("uniform", "range", None)
STUBBORN_S = 20.0
"""As good as for ever: it is to be put out."""
ODD_SHARE = 0.08
"""The share of heartbeats before which a member does something else."""
MAY_COME_LATE = frozenset({"TIMEOUT", "CONNECTION"})
"""Errors of a request that a broker may still read.  What a broker has read is in the log, in front
of what comes later, or never will be."""
NOTHING: frozenset[Place] = frozenset()


class ConsumerMember:
    def __init__(
        self, group: Groups, ownership: Owners, giving_up: set[str], client: ConsumerClient
    ) -> None:
        self.all = group
        self.ownership = ownership
        self._giving_up = giving_up
        """The clients that keep what they are to give up."""
        self.client = client
        self.epoch = 0
        """The epoch that it was told; 0: it has yet to join."""
        self.owned: frozenset[Place] = NOTHING
        """The partitions that it reads."""
        self.topics: tuple[str, ...] = SUBSCRIPTIONS[1]
        self._assignor: str | None = None
        self._assigned: frozenset[Place] = NOTHING
        """What it was last told to have; it takes that when it has given up the rest."""
        self._keeps_until: float | None = None
        """Until when it keeps what it is to give up; None: it has all that it was told."""
        self._reports = False
        """Whether it has yet to say what it owns."""
        self._says_all = True
        self._due_s = 0.0
        self._positions: dict[int, int] = {}
        self._mute_in = 0
        """The epoch in which it does not commit, as an earlier commit may still come."""
        self._former: tuple[Life, Seat, int, int] | None = None
        """A commit that it made: as whom, the partition, and the offset."""
        self.retired = False
        """Whether it has ended without a word, and will not come back."""
        self._begin()

    @property
    def member_id(self) -> str:
        return self.life.member_id

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self._keeps_until is None and not self._reports

    def refused(self, error: str) -> None:
        """A call failed."""
        self._says_all = True
        if error in UNKNOWN_OUTCOME:
            # it may not take what it was told: the coordinator may learn that it does not own it
            self._settle_for(self.owned)
        elif error == "FENCED_INSTANCE_ID":
            self._begin()

    async def turn(self) -> None:
        """Plays up to the next heartbeat."""
        random = self.client.random
        if self.retired:
            await trio.sleep_forever()
        if self.epoch == 0:
            if not self.all.resting and random.random() < 0.3:
                self._choose()
            await self._beat()
            return
        await self._until_due()
        if not self.all.resting and random.random() < ODD_SHARE:
            await random.choice(
                (self._leave, self._crash, self._sleep, self._change, self._ignore, self._late)
            )()
        elif self.epoch:
            await self._beat()

    # -- its lives ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Comes back as another process, with another member id."""
        self.life = self.ownership.begins(f"{self.client.random.getrandbits(128):032x}")
        self._forget()

    def _forget(self) -> None:
        """Gives up all partitions, and has to join."""
        self.epoch, self.owned = 0, NOTHING
        self._settle_for(NOTHING)
        self._positions.clear()
        self._mute_in = 0
        self._reports, self._says_all = False, True

    def _settle_for(self, assigned: frozenset[Place]) -> None:
        self._assigned, self._keeps_until = assigned, None
        self._giving_up.discard(self.client.name)

    def _choose(self) -> None:
        self.topics = self.client.random.choice(SUBSCRIPTIONS)
        self._assignor = self.client.random.choice(ASSIGNORS)

    async def _leave(self) -> None:
        """Leaves for good, or as a static member that comes back."""
        static = self.client.instance is not None and self.client.random.random() < 0.7
        life = self.life
        address = await self.client.coordinator(COORDINATOR, self.client.group)
        call = self.ownership.asks(life, address[0])
        self.ownership.leaves(life)
        self.all.count[f"consumer members {'away' if static else 'gone'}"] += 1
        self._begin()
        await self.client.beat(address, Report(life.member_id, AWAY if static else LEAVES))
        self.ownership.left(call)
        await self._late()

    async def _crash(self) -> None:
        """Ends without a word: its session has to end."""
        self.all.count["consumer members crashed"] += 1
        self._begin()
        await self.client.pause(0.0, 1.0)

    async def _sleep(self) -> None:
        """Stands still, perhaps for longer than its session, and commits before it asks."""
        await self.client.pause(1.0, 5.0)
        for partition in await self._mine() if self.epoch > self._mute_in else ():
            await self._commit(partition)

    async def _change(self) -> None:
        self._choose()
        self._says_all = True
        await self._beat()

    async def _ignore(self) -> None:
        """Loses an answer."""
        self.all.count["consumer answers ignored"] += 1
        await self._beat(ignores=True)

    # -- heartbeats -----------------------------------------------------------------------------

    async def _until_due(self) -> None:
        """Waits for the next heartbeat, and commits meanwhile."""
        while self.client.now() < self._due_s and not self._reports:
            await self.client.pause(0.03, 0.15)
            if self._keeps_until is not None and self.client.now() >= self._keeps_until:
                self._reconcile()
            elif self.epoch > self._mute_in and (mine := await self._mine()):
                await self._commit(self.client.random.choice(mine))

    async def _beat(self, *, ignores: bool = False) -> None:
        client, joins = self.client, self.epoch == 0
        says_all = self._says_all or joins
        report = Report(
            self.member_id,
            self.epoch,
            self.owned if says_all or self._reports else None,
            self.topics if says_all else None,
            self._assignor if says_all else None,
        )
        address = await client.coordinator(COORDINATOR, client.group)
        call = self.ownership.beats(self.life, report, address[0])
        try:
            told = await client.beat(address, report)
        except Failed as failed:
            self._failed(call, report, failed.name)
            raise
        if ignores:
            self._says_all = True
            self._settle_for(self.owned)
            return
        self.ownership.told(call, report, told)
        self._says_all = False
        if report.owned is not None:
            self._reports = False
        self._take(told)

    def _take(self, told: Told) -> None:
        client, random = self.client, self.client.random
        self.epoch = told.epoch
        self._due_s = client.now() + told.interval_s
        if told.assigned is None:
            return
        self._assigned = told.assigned
        if not self.owned - told.assigned:
            self._reconcile()
            return
        keeps_s, how = random.uniform(0.0, 0.1), random.random()
        if not self.all.resting and how < 0.8:
            keeps_s = random.uniform(0.0, 1.2)
        elif not self.all.resting:
            keeps_s = STUBBORN_S
            self.all.count["consumer members stubborn"] += 1
        if self._keeps_until is None:
            self._keeps_until = client.now() + keeps_s
            self._giving_up.add(client.name)

    def _reconcile(self) -> None:
        """Has given up what it must, takes what is new, and says so."""
        self._reports = self._reports or self.owned != self._assigned
        if self.owned - self._assigned:
            self._positions.clear()  # it asks again: it may get one back that others have had
        self.owned = self._assigned
        self._settle_for(self._assigned)

    def _failed(self, call: Call, report: Report | None, error: str) -> None:
        self.ownership.failed(call, report, error)
        if error in PUT_OUT and error != "STALE_MEMBER_EPOCH":
            self._forget()

    # -- commits --------------------------------------------------------------------------------

    async def _mine(self) -> list[int]:
        """Its partitions of the topic to which it commits."""
        if not self.owned:
            return []
        topic_id = await self.client.topic_id()
        return sorted(partition for topic, partition in self.owned if topic == topic_id)

    async def _commit(self, partition: int) -> None:
        """Commits a further offset; asks first how far others have come."""
        client, life, seat = self.client, self.life, Seat(self.member_id, self.epoch, ())
        if partition not in self._positions:
            await self._resume(seat, partition)
        offset = max(self._positions.get(partition, -1), 0) + client.random.randint(1, 5)
        await self._send(life, seat, partition, offset)
        self._positions[partition] = offset
        self._former = life, seat, partition, offset

    async def _resume(self, seat: Seat, partition: int) -> None:
        """G4: a member that asks for its position is told all that was committed before."""
        client = self.client
        address = await client.coordinator(COORDINATOR, client.group)
        call = self.ownership.asks(self.life, address[0])
        client.acts_for = seat
        try:
            found = await self.all.ask(client, address)
        except Failed as failed:
            self._failed(call, None, failed.name)
            raise
        self._positions[partition] = found[partition]

    async def _send(self, life: Life, seat: Seat, partition: int, offset: int) -> None:
        client, owners = self.client, self.ownership
        address = await client.coordinator(COORDINATOR, client.group)
        call, stale = owners.asks(life, address[0]), owners.stale(life, seat.generation)
        try:
            await client.commit(seat, partition, offset)
        except Failed as failed:
            if stale:
                self.all.count["consumer late commits"] += failed.name in PUT_OUT
                return
            self._failed(call, None, failed.name)
            if failed.name in MAY_COME_LATE:  # so nobody may commit in this epoch again
                self._mute_in = seat.generation
                if client.random.random() < 0.3:
                    self._begin()
            raise
        owners.committed(call, seat.generation, stale=stale)
        self.all.count["consumer commits"] += 1
        self.all.acknowledged(partition, offset, call.before)

    async def _late(self) -> None:
        """Repeats a commit of an earlier epoch, as a late one from the network."""
        if self._former is not None:
            life, seat, partition, offset = self._former
            if self.ownership.stale(life, seat.generation):
                await self._send(life, seat, partition, offset)
