"""A group of static members (group.instance.id, KIP-345) in the simulated workload, and its rules.

Three instances share the partitions of a topic, as in `group_workload`.  Most of their lives end
with a restart: the next process comes back under the instance id and without a member id, within
the session or after it.  Then the former process, which does not know that it was replaced, commits
and sends a heartbeat once more.  Now and then an instance offers its protocols in another order, or
an administrator removes it from the group.

* G3: in one generation, a partition has one instance.
* G4: an answer is never below a commit that was acknowledged before the question; a process that
  was replaced is fenced, in its own generation, too, and is told so; and one that was not is not
  fenced.
* L1: at the end, when all instances are silent, the group becomes empty.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self

from highwater.kafka.wire.messages import LeaveGroupRequest
from highwater.simulation.workloads.group_client import PARTITIONS, GroupClient, Seat
from highwater.simulation.workloads.group_workload import REFUSED, Groups, Member
from highwater.simulation.workloads.part import Shared, Topic, Works
from highwater.simulation.workloads.plain_client import TIMEOUT_S, Failed, check_code
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR

NAME, TOPIC = "shift", "shifted"
INSTANCES = ("early", "late", "night")
SESSION_MS = 3000
PROTOCOLS = ("range", "roundrobin")
_SUBSCRIPTION = struct.pack(f">hih{len(TOPIC)}si", 0, 1, len(TOPIC), TOPIC.encode(), -1)
"""ConsumerProtocolSubscription, version 0: one topic, no user data."""


class StaticClient(GroupClient):
    """The calls of a static member, one attempt each.  JoinGroup tells the leader from version 9
    on whether it may skip the assignment; before, it is not told that it leads."""

    group, topic = NAME, TOPIC
    session_ms, protocol_type = SESSION_MS, "consumer"
    prefers = PROTOCOLS
    late_join = False
    """Whether a JoinGroup had no answer: it may still arrive, and replace a later process."""

    def protocols(self) -> list[tuple[str, bytes]]:
        return [(name, _SUBSCRIPTION) for name in self.prefers]

    async def join(self, member_id: str) -> tuple[str, int, list[str]]:
        request = self.join_request(member_id)
        version = self.random.choice((5, 9))
        address = await self.coordinator(COORDINATOR, self.group)
        try:
            answer = await self._call(address, request, version)
        except Failed:
            self.late_join = True
            raise
        check_code(answer.error_code)
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        members = [str(m.member_id) for m in answer.members] if leads else []
        return str(answer.member_id), int(answer.generation_id), members

    async def leave(self, member_id: str) -> None:
        """Removes the instance, whatever its member id is, as an administrator does."""
        member = LeaveGroupRequest.MemberIdentity(
            member_id=member_id, group_instance_id=self.instance
        )
        request = LeaveGroupRequest(group_id=self.group, members=[member])
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 3)
        check_code(answer.error_code or answer.members[0].error_code)


class Shift(Groups):
    """The instances, their shared knowledge, and the verdict."""

    name, kind = NAME, "static"
    flag = "static_members"
    help = "Static members; offsets and groups that are deleted."
    topics = (Topic(TOPIC, PARTITIONS),)
    client_kind, last = StaticClient, "last-asked"

    @classmethod
    def of(cls, shared: Shared) -> Self:
        rules, count, errors, pace = shared.told
        rules.unclean |= {TOPIC}
        return cls(rules, count, errors, pace / 4)

    def clients(self) -> Works:
        return {**dict.fromkeys(INSTANCES, self.member), "passer-by": self.stranger}

    def _one(self, client: GroupClient) -> Member:
        client.instance = client.name
        return _Instance(self, client)


class _Instance(Member):
    """One instance through all its processes."""

    def __init__(self, shift: Groups, client: GroupClient) -> None:
        super().__init__(shift, client)
        self.replaced: Seat | None = None
        """The seat of the process that was restarted."""
        self.stored_id: str | None = None
        """The last member id with an answered SyncGroup: its generation is stored."""
        self.stored_since = self.since
        """The state of the groups' log before that member joined."""

    def refused(self, error: str) -> None:
        client = self.client
        assert isinstance(client, StaticClient)
        stored = self.member_id == self.stored_id and not client.late_join
        lost = self.all.lost(self.stored_since)
        if stored and error == "FENCED_INSTANCE_ID" and not lost:
            asked = client.last_asked(COORDINATOR, NAME)
            since_s = self.all.rules.now() - TIMEOUT_S
            if asked and asked != self.all.leader() and self.all.led_once(asked, since_s):
                # it may know a process of its own term that the next coordinator never knew
                self.all.count["static: fenced by a former coordinator"] += 1
                super().refused(error)
                return
            self.all.rules.broken("G4", f"{self.member_id} was fenced, and nobody replaced it")
        super().refused(error)

    async def _late(self, seat: Seat) -> None:
        self.stored_id, self.stored_since = seat.member_id, self.since
        await super()._late(seat)
        former, self.replaced = self.replaced, None
        if former is None or former.member_id == seat.member_id:
            return
        self.all.count["static: came back"] += 1
        if former.generation == seat.generation:
            self.all.count["static: came back without a rebalance"] += 1
        await self._act_as(former, seat)

    async def _act_as(self, former: Seat, seat: Seat) -> None:
        """G4: lets the replaced process act once more; `seat` is that of its successor."""
        partition = self.client.random.choice(sorted(self.all.acked) or [0])
        offset = self.all.acked[partition].offset + 1 if partition in self.all.acked else 0
        calls: dict[str, Callable[[], Awaitable[None]]] = {
            "commit": partial(self.client.commit, former, partition, offset),
            "heartbeat": partial(self.client.heartbeat, former),
        }
        for what, call in calls.items():
            try:
                await call()
            except Failed as failed:
                self.all.errors[failed.name] += 1
                self.all.count[f"static: {what} refused"] += failed.name in REFUSED
                if failed.name == "UNKNOWN_MEMBER_ID":
                    await self._insist_that_it_is_gone(former, seat, what)
                continue
            if not self.all.lost(self.since):
                self.all.rules.broken(
                    "G4",
                    f"{former.member_id} was replaced by {seat.member_id} in generation "
                    f"{seat.generation}, and its {what} was taken",
                )

    async def _insist_that_it_is_gone(self, former: Seat, seat: Seat, what: str) -> None:
        """G4: a process that gets UNKNOWN_MEMBER_ID joins again, and would replace its successor.
        So it may get that error only if the successor (`seat`) is not in the group either."""
        await self.client.heartbeat(seat)
        if not self.all.lost(self.since):
            self.all.rules.broken(
                "G4",
                f"{former.member_id} was replaced by {seat.member_id}, and its {what} was "
                "answered with UNKNOWN_MEMBER_ID, not FENCED_INSTANCE_ID",
            )

    async def _end(self, seat: Seat, positions: dict[int, int]) -> None:
        client, random = self.client, self.client.random
        assert isinstance(client, StaticClient)
        choice = random.random()
        if choice < 0.6:  # a new process
            self.replaced, self.member_id = seat, ""
            await self._sleep(random.uniform(0.0, 1.0) if choice < 0.45 else 3.5)
            if choice < 0.1:
                client.prefers = random.choice((PROTOCOLS, PROTOCOLS[::-1]))
        elif choice < 0.7:
            await client.leave("")
            self.member_id = ""
        elif choice < 0.8:
            await self._sleep(random.uniform(1.5, 5.0))
            for partition in seat.partitions:
                await self._commit(seat, partition, positions)
