"""One member of a share group through all its lives: a client as KIP-932 wants it, and worse.

It joins with epoch 0 and a member id of its own, sends heartbeats, has a share session with every
leader, and fetches.  It accepts, releases and rejects records, alone or with its next fetch, renews
locks, keeps records until their locks have ended and speaks too late, and says again what it has
said.  The end of a transaction is no record for it, but a gap.  Now and then it leaves, crashes
(its connections end, or live on without it), or sleeps for longer than its session.  Once the
faults are over it accepts all that it gets, at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from highwater.kafka.types import TopicPartition
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.sharing.share_client import (
    ACCEPT,
    CLOSES,
    GAP,
    LEAVES,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    Ack,
    Answered,
    Given,
    ShareClient,
)
from highwater.simulation.workloads.sharing.share_ledger import LOCK_MS, Call, Ledger

if TYPE_CHECKING:
    from collections import Counter

INTERVAL_MS = 300
ODD_SHARE = 0.03
"""The share of turns in which a member does something else."""
PUT_OUT = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"})


class Group(Protocol):
    """What its members have in common."""

    ledger: Ledger
    count: Counter[str]
    errors: Counter[str]
    pace: float
    resting: bool

    def read(self, member: str, given: Given, answer: Answered) -> None:
        """Checks the records that a member was sent."""


@dataclass(slots=True)
class _Held:
    """Records that it has, and when it will say what of them."""

    given: Given
    types: tuple[int, ...]
    at_s: float
    gaps: frozenset[int] = frozenset()
    """Offsets at which there is no record."""

    def said(self) -> tuple[int, ...]:
        """The types, with the gaps."""
        if not self.gaps or self.types in ((), (RENEW,)):
            return self.types
        offsets = range(self.given.first, self.given.last + 1)
        types = self.types if len(self.types) > 1 else self.types * len(offsets)
        return tuple(GAP if at in self.gaps else t for at, t in zip(offsets, types, strict=True))


@dataclass(slots=True)
class _Session:
    """A share session with one broker."""

    epoch: int = 0
    places: frozenset[int] = field(default_factory=frozenset)


class ShareMember:
    def __init__(self, group: Group, client: ShareClient) -> None:
        self.all = group
        self.ledger: Ledger = group.ledger
        self.client = client
        self._begin()

    def _begin(self) -> None:
        """Comes back as another process, with another member id."""
        self.member_id = f"{self.client.random.getrandbits(128):032x}"
        self.epoch = 0
        self._due_s = 0.0
        self._assigned: frozenset[int] = frozenset()
        self._sessions: dict[tuple[str, int], _Session] = {}
        self._held: list[_Held] = []
        self._said: list[Ack] = []

    def refused(self, error: str) -> None:
        """A call failed."""
        if error in PUT_OUT:
            self.epoch = 0

    async def turn(self) -> None:
        """Plays one request, or a few."""
        client, random = self.client, self.client.random
        if self.epoch == 0 or client.now() >= self._due_s:
            await self._beat()
            return
        await client.pause(0.01 / self.all.pace, 0.06 / self.all.pace)
        if not self.all.resting and random.random() < ODD_SHARE:
            await random.choice(
                (self._leave, self._crash, self._sleep, self._close, self._repeat)
            )()
            return
        if not self._assigned:
            await client.pause(0.05, 0.2)
            return
        await self._work(random.choice(sorted(self._assigned)))

    # -- the group ------------------------------------------------------------------------------

    async def _beat(self) -> None:
        epoch, assigned = await self.client.beat(self.member_id, self.epoch)
        self.all.count["share heartbeats"] += 1
        self.epoch = epoch
        self._due_s = self.client.now() + INTERVAL_MS / 1000
        if assigned is not None:
            self._assigned = assigned

    async def _leave(self) -> None:
        member, random = self.member_id, self.client.random
        if random.random() < 0.5:
            for address in list(self._sessions):
                await self._end_session(address)
        self.all.count["share members gone"] += 1
        self._begin()
        await self.client.beat(member, LEAVES)

    async def _crash(self) -> None:
        """Ends without a word: its session has to end, and perhaps its locks."""
        self.all.count["share members crashed"] += 1
        if self.client.random.random() < 0.6:
            self.client.hang_up()
        self._begin()
        await self.client.pause(0.0, 0.5)

    async def _sleep(self) -> None:
        await self.client.pause(0.5, 4.0)

    async def _close(self) -> None:
        """Ends a session, which releases what is left."""
        if self._sessions:
            await self._end_session(self.client.random.choice(sorted(self._sessions)))

    async def _end_session(self, address: tuple[str, int]) -> None:
        session = self._sessions.pop(address)
        acks = self._due(session.places)
        if self.client.random.random() < 0.5:
            await self._acknowledge(address, CLOSES, acks)
        else:
            await self._fetch(address, session, CLOSES, acks)
        self._held = [held for held in self._held if held.given.partition not in session.places]

    # -- records --------------------------------------------------------------------------------

    async def _work(self, partition: int) -> None:
        """Fetches from one broker, and says what is due."""
        client, random = self.client, self.client.random
        address = await client.leader(partition)
        session = self._sessions.setdefault(address, _Session())
        if session.epoch:
            if random.random() < 0.4:
                acks = self._due(session.places)
                if acks:
                    renews = any(RENEW in ack.types for ack in acks)
                    await self._in_session(address, session, acks, renews=renews)
                    return
            acks = [ack for ack in self._due(session.places) if RENEW not in ack.types]
        else:
            acks = []
        wanted = frozenset([partition])
        for other in sorted(self._assigned - wanted):
            if client.known_leader(TopicPartition(TOPIC, other)) == client.known_leader(
                TopicPartition(TOPIC, partition)
            ):
                wanted |= {other}
        if session.epoch and random.random() < 0.1:
            wanted = frozenset([partition])
        added = wanted - session.places if session.epoch else wanted
        forgotten = session.places - wanted if session.epoch else frozenset[int]()
        answer = await self._fetch(address, session, session.epoch, acks, added, forgotten)
        session.places = wanted
        session.epoch += 1
        for number, error in sorted(answer.errors.items()):
            self.all.errors[error] += 1
            client.forget(TopicPartition(TOPIC, number))

    async def _in_session(
        self, address: tuple[str, int], session: _Session, acks: list[Ack], *, renews: bool = False
    ) -> None:
        try:
            await self._acknowledge(address, session.epoch, acks, renews=renews)
        except Failed:
            self._sessions.pop(address, None)
            self._forget(acks)
            raise
        session.epoch += 1

    async def _fetch(
        self,
        address: tuple[str, int],
        session: _Session,
        epoch: int,
        acks: list[Ack],
        added: frozenset[int] = frozenset(),
        forgotten: frozenset[int] = frozenset(),
    ) -> Answered:
        client = self.client
        partitions = sorted(session.places | added)
        call = self.ledger.asks(self.member_id, address[0], partitions, acks)
        limit = client.random.random() < 0.3
        try:
            answer = await client.fetch(
                address, self.member_id, epoch, added, forgotten, acks, record_limit=limit
            )
        except Failed:
            self._sessions.pop(address, None)
            self._forget(acks)
            raise
        self._take(call, acks, answer)
        return answer

    async def _acknowledge(
        self, address: tuple[str, int], epoch: int, acks: list[Ack], *, renews: bool = False
    ) -> None:
        call = self.ledger.asks(self.member_id, address[0], (), acks)
        answer = await self.client.acknowledge(address, self.member_id, epoch, acks, renews=renews)
        self._take(call, acks, answer)

    def _take(self, call: Call, acks: list[Ack], answer: Answered) -> None:
        refused = set()
        for ack in acks:
            code = answer.acks.get(ack.partition)
            if code == 0:
                self.ledger.acknowledged(call, ack)
            elif code:
                refused.add(ack.partition)
        self.all.count["share acknowledgements refused"] += len(refused)
        for partition in sorted(refused):
            self.client.forget(TopicPartition(TOPIC, partition))
        if acks:
            self._said = acks
        for given in answer.given:
            self.all.read(call.member, given, answer)
            self.ledger.given(call, given)
            held = self._decide(given)
            held.gaps = frozenset(at for number, at in answer.markers if number == given.partition)
            self._held.append(held)

    def _forget(self, acks: list[Ack]) -> None:
        """Keeps what it has said for a repetition."""
        if acks:
            self._said = acks

    def _decide(self, given: Given) -> _Held:
        random, now = self.client.random, self.client.now()
        if self.all.resting:
            return _Held(given, (ACCEPT,), now)
        how, size = random.random(), given.last - given.first + 1
        at_s = now + random.choice((0.0, 0.0, 0.2, 0.6))
        if how < 0.4:
            return _Held(given, (ACCEPT,), at_s)
        if how < 0.55:
            return _Held(given, (RELEASE,), at_s)
        if how < 0.62:
            return _Held(given, (REJECT,), at_s)
        if how < 0.75:
            kinds = tuple(random.choice((ACCEPT, ACCEPT, RELEASE, REJECT)) for _ in range(size))
            return _Held(given, kinds, at_s)
        if how < 0.83:
            return _Held(given, (RENEW,), now + random.uniform(0.3, 1.2))
        if how < 0.92:  # too late, or as good as
            return _Held(given, (ACCEPT,), now + random.uniform(0.8, 1.6) * LOCK_MS / 1000)
        return _Held(given, (), now)  # it says nothing

    def _due(self, places: frozenset[int]) -> list[Ack]:
        """What is to be said now of records of these partitions; that is not kept any more."""
        now, acks, kept = self.client.now(), list[Ack](), list[_Held]()
        for held in sorted(self._held, key=lambda h: (h.given.partition, h.given.first)):
            partition, first, last, _ = held.given
            overlaps = any(a.partition == partition and a.last >= first for a in acks)
            renews_too = bool(acks) and (RENEW in held.types) != (RENEW in acks[0].types)
            if (
                partition not in places
                or overlaps
                or renews_too
                or (held.at_s > now and not self.all.resting)
            ):
                kept.append(held)
            elif held.types:
                acks.append(Ack(partition, first, last, held.said()))
                if held.types == (RENEW,):
                    kept.append(_Held(held.given, (ACCEPT,), now + 0.5, held.gaps))
        self._held = kept
        return acks

    async def _repeat(self) -> None:
        """Says again what it has said."""
        acks = self._said
        if not acks:
            return
        address = await self.client.leader(acks[0].partition)
        session = self._sessions.get(address)
        if session is None or not session.epoch:
            return
        self.all.count["share acknowledgements repeated"] += 1
        renews = any(RENEW in ack.types for ack in acks)
        await self._in_session(address, session, acks, renews=renews)
