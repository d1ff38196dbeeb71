"""A consumer group in the simulated workload, and its rules.

Three members share some partitions.  Each commits rising offsets for its assigned partitions; now
and then it leaves, crashes (and comes back under another member id), or sleeps for longer than its
session.  A stranger asks all the brokers for the offsets, again and again; it asks a new
coordinator at once, before that can have read anything.

* G3: in one generation, a partition has one member.
* G4: an answer is never below a commit that was acknowledged before the question; and a commit of
  a past generation is refused: each member sends an old one, as a late one from the network,
  after it has joined the next generation.
* L1: at the end, when all members are silent and nothing is broken, the group becomes empty.

A commit whose answer was lost may still be in flight.  So its member gives up its partitions, and
comes back as a new one: the next generation fences late commits.

A replaced coordinator that does not know it answers from its old knowledge, in Kafka too: where
ZooKeeper named another leader before the question, a low answer is counted separately (as for C13).
A careless power loss may take commits and generations back (`allowed_losses`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

import trio

from highwater.simulation.rules.allowed_losses import (
    GROUPS,
    Moment,
    coordinator_of,
    former_leads,
    log_of,
    lost_between,
    moment,
)
from highwater.simulation.workloads.group_client import (
    NAME,
    PARTITIONS,
    TOPIC,
    GroupClient,
    Seat,
)
from highwater.simulation.workloads.part import Part, Topic, Works
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR

MEMBERS = 3
JUDGE_S = 30.0
SILENT_S = 15.0
"""Time for a session, a rebalance in progress, and the session of a member that joined in it."""
AT_ONCE_S = 0.1
_NOT_THERE = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "TIMEOUT", "CONNECTION"})
REFUSED = frozenset(
    {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID"}
)


@dataclass(slots=True)
class Acked:
    """The highest acknowledged commit of a partition."""

    offset: int
    since: Moment
    until: Moment
    """The states of the groups' log before the commit was sent, and when it was answered."""


class Player(Protocol):
    """One member through all its lives in the group."""

    async def turn(self) -> None:
        """Plays for a while; raises Failed."""

    def refused(self, error: str) -> None:
        """A call failed."""


class Groups(Part):
    """The members, their shared knowledge, and the verdict; the stranger asks at the pace."""

    flag = "groups"
    help = "A consumer group that rebalances, too."
    topics = (Topic(TOPIC, PARTITIONS, aimed=0),)
    coordinated = GROUPS
    client_kind, last = GroupClient, "group-reader"

    name, kind = NAME, "group"
    """The group's id, and the first word of what is counted."""

    def __post_init__(self) -> None:
        self.acked: dict[int, Acked] = {}
        self.owners: dict[tuple[int, int], str] = {}
        self.newest = Acked(-1, Moment(0, 0), Moment(0, 0))
        """The newest generation with an answered SyncGroup: it is stored."""

    def clients(self) -> Works:
        members = {f"member-{number}": self.member for number in range(MEMBERS)}
        return {**members, "stranger": self.stranger}

    def now(self) -> Moment:
        return moment(self.rules, GROUPS, self.name)

    def lost(self, since: Moment, until: Moment | None = None) -> bool:
        return lost_between(self.rules, GROUPS, self.name, since, until)

    # -- what is learned ------------------------------------------------------------------------

    def seated(self, seat: Seat, since: Moment, who: str = "") -> None:
        """G3: a SyncGroup was answered.  `who` sits there; a member id, if not given."""
        who = who or seat.member_id
        self.count[f"{self.kind} seats"] += 1
        if self.lost(self.newest.since, self.newest.until):
            self.owners.clear()  # generations may come a second time
            self.newest = Acked(-1, since, self.now())
        if seat.generation > self.newest.offset:
            self.newest = Acked(seat.generation, since, self.now())
        for partition in seat.partitions:
            owner = self.owners.setdefault((seat.generation, partition), who)
            if owner != who:
                self.rules.broken(
                    "G3",
                    f"generation {seat.generation}: partition {partition} was assigned to "
                    f"{owner} and to {who}",
                )

    def committed(self, seat: Seat, partition: int, offset: int, before: Moment, old: int) -> None:
        """G4: a commit was acknowledged; `old` is the newest generation before it was sent."""
        self.count[f"{self.kind} commits"] += 1
        if seat.generation < old and not self.lost(self.newest.since, self.newest.until):
            self.rules.broken(
                "G4",
                f"{seat.member_id} committed {offset} for partition {partition} in generation "
                f"{seat.generation}, and generation {old} had begun",
            )
        self.acknowledged(partition, offset, before)

    def acknowledged(self, partition: int, offset: int, before: Moment) -> None:
        """Notes a commit; `before` is the state of the groups' log when it was sent."""
        known = self.acked.get(partition)
        if known is None or offset >= known.offset:
            self.acked[partition] = Acked(offset, before, self.now())

    def answered(self, known: dict[int, Acked], answer: dict[int, int], *, fenced: bool) -> None:
        """G4: `known` was acknowledged before the question; `fenced`: it went to a broker that was
        already replaced, and did not know it."""
        self.count[f"{self.kind} answers"] += 1
        for partition, acked in known.items():
            if answer[partition] >= acked.offset:
                continue
            if self.lost(acked.since, acked.until):
                self.count[f"{self.kind} commits lost as expected"] += 1
                if self.acked.get(partition) is acked:
                    del self.acked[partition]
                continue
            if fenced:
                self.count[f"{self.kind} answers of fenced coordinators"] += 1
                continue
            self.rules.broken(
                "G4",
                f"partition {partition} is committed up to {answer[partition]}, is the answer; "
                f"{acked.offset} was acknowledged before",
            )

    def leader(self) -> str:
        """The host that leads the group's log, by ZooKeeper."""
        return coordinator_of(self.rules, GROUPS, self.name)

    def led_once(self, host: str, since_s: float) -> bool:
        return former_leads(self.rules, GROUPS, self.name, host, since_s)

    async def ask(
        self, client: GroupClient, address: tuple[str, int] | None = None
    ) -> dict[int, int]:
        """The least offset of each partition."""
        where = address or await client.coordinator(COORDINATOR, self.name)
        known, leader, asked_s = dict(self.acked), self.leader(), self.rules.now()
        answer = await client.committed(where)
        fenced = where[0] != leader and self.led_once(where[0], asked_s)
        self.answered(known, answer, fenced=fenced)
        return {p: max(at, self.acked[p].offset if p in self.acked else at)
                for p, at in answer.items()}  # fmt: skip

    # -- who takes part -------------------------------------------------------------------------

    def _one(self, client: GroupClient) -> Player:
        return Member(self, client)

    async def member(self, client: GroupClient) -> None:
        """Plays a member until cancelled."""
        one = self._one(client)
        while True:
            try:
                await one.turn()
            except Failed as failed:
                self.errors[failed.name] += 1
                if failed.name in _NOT_THERE:
                    client.lose(COORDINATOR, self.name)
                one.refused(failed.name)
                await client.pause(0.02, 0.2)

    async def stranger(self, client: GroupClient) -> None:
        """Asks all brokers until cancelled; one that does not answer delays no other."""
        async with trio.open_nursery() as nursery:
            for address in client.brokers():
                nursery.start_soon(self._ask_often, client, address)
            nursery.start_soon(self._ask_at_once, client)

    async def _ask_often(self, client: GroupClient, address: tuple[str, int]) -> None:
        while True:
            try:
                await self.ask(client, address)
            except Failed as failed:
                self.errors[failed.name] += 1
            await client.pause(0.01 / self.pace, 0.04 / self.pace)

    async def _ask_at_once(self, client: GroupClient) -> None:
        """Asks a newly elected coordinator until it has had time to load."""
        known = -1
        while True:
            await client.sleep(0.005)
            truth = log_of(self.rules, GROUPS, self.name)
            if truth is None or truth.state is None or truth.state.leader_epoch == known:
                continue
            known, leader = truth.state.leader_epoch, truth.state.leader
            until = trio.current_time() + AT_ONCE_S
            while leader >= 0 and trio.current_time() < until:
                try:
                    await self.ask(client, (f"broker-{leader}", client.brokers()[0][1]))
                except Failed as failed:
                    self.errors[failed.name] += 1
                    if failed.name in ("TIMEOUT", "CONNECTION"):
                        break

    async def judge(self, client: GroupClient) -> None:
        """Checks after the faults that acknowledged commits are there."""
        deadline = trio.current_time() + JUDGE_S
        while True:
            try:
                await self.ask(client)
                break
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, self.name)
                if trio.current_time() > deadline:
                    self.rules.broken("L1", f"the offsets of {self.name} cannot be read: {failed}")
                    return
                await client.pause()
        if not self.count[f"{self.kind} commits"]:
            self.rules.broken("L1", "no member of the group ever committed")
        await self._judge_silence(client)

    async def _judge_silence(self, client: GroupClient) -> None:
        """Checks that silent members are no longer in the group."""
        deadline = trio.current_time() + SILENT_S
        found = "nothing"
        while trio.current_time() < deadline:
            try:
                state, members = await client.described()
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, self.name)
                found = str(failed)
            else:
                if not members and state in ("Empty", "Dead"):
                    self.count[f"{self.kind} empty at the end"] += 1
                    return
                found = f"{state} with {members} members"
            await client.sleep(0.2)
        after = f"{SILENT_S:g} s after its members fell silent"
        self.rules.broken("L1", f"{after}, {self.name} is {found}")


class Member:
    """One member through all its lives in the group."""

    def __init__(self, groups: Groups, client: GroupClient) -> None:
        self.all = groups
        self.client = client
        self.member_id = ""
        self.before: tuple[Seat, int, int] | None = None
        """Its previous seat, and a commit that it made there: partition and offset."""
        self.since = groups.now()
        """The state of the groups' log before it joined."""
        self.led: Seat | None = None
        """Its seat, if it was the leader."""
        self.led_since = self.since
        """The state of the groups' log before it joined for that seat."""

    def refused(self, error: str) -> None:
        """A call failed."""
        if error in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self.member_id = ""

    async def turn(self) -> None:
        """Plays one generation."""
        seat = await self._sit()
        positions = await self.all.ask(self.client)
        await self._late(seat)
        random = self.client.random
        heard: float | None = None
        for _ in range(random.randint(3, 30)):
            await self.client.pause(0.05, 0.4)
            heard = await self._heartbeat(seat, heard)
            if seat.partitions:
                await self._commit(seat, random.choice(seat.partitions), positions)
        await self._end(seat, positions)

    async def _heartbeat(self, seat: Seat, heard: float | None) -> float:
        """G4: one that was a member is one until its session has passed; gives when it was."""
        asked = self.client.now()
        try:
            await self.client.heartbeat(seat)
        except Failed as failed:
            ago = self.client.now() - heard if heard is not None else inf
            gone = failed.name == "UNKNOWN_MEMBER_ID" and ago < self.client.session_ms / 1000
            if gone and not self.all.lost(self.since):
                what = f"was a member {ago:.2f} s ago, and is unknown"
                self.all.rules.broken("G4", f"{seat.member_id} {what}")
            raise
        return asked

    async def _end(self, seat: Seat, positions: dict[int, int]) -> None:
        """Ends its time in this generation."""
        random = self.client.random
        choice = random.random()
        if choice < 0.3:
            await self._leave(seat)
            self.member_id = ""
        elif choice < 0.5:
            self._silent(inf)  # a crash: its session has to end
            self.member_id = ""
        elif choice < 0.7:
            await self._sleep(random.uniform(1.5, 4.0))
            for partition in seat.partitions:
                await self._commit(seat, partition, positions)

    def _silent(self, seconds: float) -> None:
        """Others may have to wait for it, as long as its session lasts."""
        session_s = self.client.session_ms / 1000
        self.all.rules.lateness.silent(self.all.name, min(seconds, session_s))

    async def _sleep(self, seconds: float) -> None:
        self._silent(seconds)
        await self.client.sleep(seconds)

    async def _leave(self, seat: Seat) -> None:
        try:
            await self.client.leave(self.member_id)
        except Failed as failed:
            if failed.name == "UNKNOWN_MEMBER_ID":
                await self.client.heartbeat(seat)
                self.all.rules.broken("G4", f"{seat.member_id} is a member, and may not leave")
            raise

    async def _sit(self) -> Seat:
        client, waits = self.client, self.all.rules.lateness
        self.since = self.all.now()
        generation, members = -1, list[str]()
        waits.joins(self.all.name, client.name)
        while generation < 0:
            self.member_id, generation, members = await client.join(self.member_id)
        seat = Seat(self.member_id, generation, ())
        self._check_rejoined(seat)
        assigned: dict[str, list[int]] = {who: [] for who in members}
        for partition in range(PARTITIONS if members else 0):
            assigned[members[partition % len(members)]].append(partition)
        seat = await client.sync(seat, assigned)
        waits.seated(self.all.name, client.name)
        self.all.seated(seat, self.since, client.instance or "")
        self.led = seat if members and client.instance is None else None
        self.led_since = self.since
        return seat

    def _check_rejoined(self, seat: Seat) -> None:
        """G3: a leader that joins again wants another assignment, so a new generation begins, as
        long as the group's log has not lost the generation that it led."""
        led, self.led = self.led, None
        if led is not None and seat[:2] == led[:2] and not self.all.lost(self.led_since):
            self.all.rules.broken(
                "G3", f"{seat.member_id}, the leader, joined again in generation {seat.generation}"
            )

    async def _commit(self, seat: Seat, partition: int, positions: dict[int, int]) -> None:
        offset = max(positions[partition], 0) + self.client.random.randint(1, 5)
        before, newest = self.all.now(), self.all.newest.offset
        try:
            await self.client.commit(seat, partition, offset)
        except Failed as failed:
            if failed.name not in REFUSED:
                self.member_id = ""  # it may come late: only the next generation fences it
            raise
        positions[partition] = offset
        self.all.committed(seat, partition, offset, before, newest)
        self.before = (seat, partition, offset)

    async def _late(self, seat: Seat) -> None:
        """Repeats a commit of its former generation."""
        if self.before is None or self.before[0].generation >= seat.generation:
            return
        former, partition, offset = self.before
        former = former._replace(member_id=seat.member_id)
        before, newest = self.all.now(), self.all.newest.offset
        try:
            await self.client.commit(former, partition, offset)
        except Failed as failed:
            self.all.errors[failed.name] += 1
            self.all.count[f"{self.all.kind} late commits"] += failed.name in REFUSED
            return
        self.all.committed(former, partition, offset, before, newest)
