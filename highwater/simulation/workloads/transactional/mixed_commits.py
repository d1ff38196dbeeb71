"""Groups whose offset is committed both in transactions and outside of them.

One client commits rising numbers to one group: by a plain commit, or in a transaction that is then
committed or aborted, with or without a plain commit while it is open.  Of two commits the one that
is later in the group's log counts, wherever the transaction's marker is
(kafka.coordinator.group.GroupMetadata.completePendingTxnOffsetCommit).

Each call is made once.  After the first that fails, and so may still be carried out, the client
goes on with another group and a new producer epoch: of each group only the last step is uncertain.

* T5: a group's offset is the last one that was committed, or that of its uncertain last step.

A loss of the group's log, or of a decision, in a careless power loss is excused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from highwater.simulation.rules.allowed_losses import (
    DECISIONS,
    GROUPS,
    Moment,
    coordinator_of,
    former_leads,
    lost_between,
    moment,
)
from highwater.simulation.workloads.part import Part, Works
from highwater.simulation.workloads.persistent_calls import attempt
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transaction_workload import TIMEOUT_MS
from highwater.simulation.workloads.transactional.transactions_client import (
    GROUP,
    TRANSACTION,
    TxnClient,
)

NAME = "mixer"
STEPS = 12
NONE = -1


@dataclass(slots=True)
class _Group:
    """One group; `allowed` has the offsets that it may have now."""

    name: str
    begun: tuple[Moment, Moment]
    ended: tuple[Moment, Moment] | None = None
    """The states of the groups' and of the decisions' log: before it, and after its last call."""
    allowed: set[int] = field(default_factory=lambda: {NONE})


class MixedCommits(Part):
    """The groups from their client's side."""

    needs = ("groups", "transactions")
    client_kind, last = TxnClient, "last-look"

    def __post_init__(self) -> None:
        self._groups: list[_Group] = []
        self._number = 0

    def clients(self) -> Works:
        return {"mixer": self.commit}

    async def commit(self, client: TxnClient) -> None:
        """Goes on from group to group until cancelled."""
        random = client._world.random
        while True:
            name = f"mixed-{len(self._groups)}"
            group = _Group(name, self._moments(name))
            self._groups.append(group)
            try:
                me = await client.init(NAME, TIMEOUT_MS)
                for _ in range(STEPS):
                    if random.random() < 0.4:
                        await self._alone(client, group)
                    else:
                        await self._in_transaction(client, group, me)
                    await self._look(client, group)
                    await client.pause(0.01 / self.pace, 0.2 / self.pace)
                group.ended = self._moments(name)
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(TRANSACTION, NAME)
                client.lose(GROUP, name)
                await client.pause(0.02, 0.2)

    def _moments(self, name: str) -> tuple[Moment, Moment]:
        return moment(self.rules, GROUPS, name), moment(self.rules, DECISIONS, NAME)

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _alone(self, client: TxnClient, group: _Group) -> None:
        number = self._next()
        group.allowed.add(number)
        await client.commit_alone(group.name, number)
        group.allowed = {number}
        self.count["mixed: alone"] += 1

    async def _in_transaction(self, client: TxnClient, group: _Group, me: tuple[int, int]) -> None:
        random, number, before = client._world.random, self._next(), set(group.allowed)
        await self._past(
            client, "CONCURRENT_TRANSACTIONS", lambda: client.add_offsets(NAME, me, group.name)
        )
        group.allowed.add(number)
        await client.commit_offset(NAME, me, number, group.name)
        group.allowed.discard(number)  # it is not committed yet
        meanwhile = random.random() < 0.3
        if meanwhile:
            await self._alone(client, group)
        commit = random.random() < 0.7
        if commit and not meanwhile:
            group.allowed.add(number)
        await client.end(NAME, me, commit)
        if commit and not meanwhile:
            # until the marker is written, answers have the former offset
            group.allowed = before | {number}
            await self._past(
                client, "UNSTABLE_OFFSET_COMMIT", lambda: self._ask(client, group, stable=True)
            )
            group.allowed = {number}
        self.count["mixed: committed" if commit else "mixed: aborted"] += 1

    async def _past(
        self, client: TxnClient, error: str, call: Callable[[], Awaitable[None]]
    ) -> None:
        """Repeats a call until it no longer fails by this error, which passes."""
        while True:
            try:
                return await call()
            except Failed as failed:
                if failed.name != error:
                    raise
                self.errors[failed.name] += 1
                await client.pause(0.01, 0.05)

    async def _look(self, client: TxnClient, group: _Group) -> None:
        if client._world.random.random() < 0.3:
            await self._ask(client, group, stable=False)

    async def _ask(self, client: TxnClient, group: _Group, *, stable: bool) -> None:
        """Checks an answer, but ignores that of a broker that was replaced and does not know it."""
        host, _ = await client.coordinator(GROUP, group.name)
        leader, asked_s = coordinator_of(self.rules, GROUPS, group.name), self.rules.now()
        offset = await client.committed_offset(group.name, stable=stable)
        if host != leader and former_leads(self.rules, GROUPS, group.name, host, asked_s):
            self.count["mixed: answers of fenced coordinators"] += 1
            raise Failed("NOT_COORDINATOR")
        self.count["mixed: looked at"] += 1
        if offset in group.allowed or self._excused(group):
            return
        self.rules.broken(
            "T5", f"group {group.name} is at {offset}, and may be at {sorted(group.allowed)}"
        )

    def _excused(self, group: _Group) -> bool:
        of_group, of_decisions = zip(group.begun, group.ended or (None, None), strict=True)
        return lost_between(self.rules, GROUPS, group.name, *of_group) or lost_between(
            self.rules, DECISIONS, NAME, *of_decisions
        )

    async def judge(self, client: TxnClient) -> None:
        """Looks at every group once more."""
        for group in self._groups:
            try:
                await attempt(
                    client,
                    lambda group=group: self._ask(client, group, stable=False),  # type: ignore[misc]
                    lambda name=group.name: client.lose(GROUP, name),  # type: ignore[misc]
                    self.errors,
                )
            except Failed as failed:
                self.rules.broken("L1", f"the offset of {group.name} cannot be read: {failed}")
                return
