"""The transactions of a share group's topic, and the rules about them.

One producer writes in transactions, commits or aborts them, or leaves them to their time-out.  The
ledger is that of the transactional workload (`Transactions`); the log's own markers say how each
transaction ended where its producer does not know it.

* T3: under read_committed no member gets a record whose commit was not asked for, or whose marker
  says that it was aborted.
* S1: every record of a committed transaction was given to a member, or delivered as often as may
  be; under read_uncommitted every record of any transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules.allowed_losses import excused
from highwater.simulation.rules.stable_offsets import StableOffsets
from highwater.simulation.workloads.sharing.share_client import PARTITIONS, TOPIC, Place
from highwater.simulation.workloads.transactional.transaction_ledger import Fate
from highwater.simulation.workloads.transactional.transaction_workload import (
    Fenced,
    Producer,
    Transactions,
)

if TYPE_CHECKING:
    from highwater.simulation.rules.cluster_rules import Rules
    from highwater.simulation.workloads.sharing.share_ledger import Ledger
    from highwater.simulation.workloads.transactional.transactions_client import TxnClient

NAME = "bundler"
TPS = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
TIMEOUT_MS = 2500
LEFT, COMMITTED = 0.05, 0.65
"""The shares of transactions that are left, and committed; the others are aborted."""


class ShareTransactions:
    def __init__(self, rules: Rules, count: Counter[str], errors: Counter[str]) -> None:
        self.rules = rules
        self.known = Transactions(rules, count, errors)
        self.read_committed = False
        self.bumps = False
        """Whether its producer speaks transaction.version 2."""
        self._given: set[bytes] = set()
        """The values that members got."""

    async def fill(self, client: TxnClient, pace: float) -> None:
        """Runs one producer after the other until cancelled."""
        instance = 0
        while True:
            instance += 1
            producer = _Producer(
                self.known, client, NAME, instance, TIMEOUT_MS, bumps=self.bumps, pace=pace
            )
            await producer.run(client.random.randint(1, 6))
            await client.pause()

    # -- what the log says ----------------------------------------------------------------------

    def _aborted(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the log has a marker that aborts this record's transaction."""
        truth = self.rules.partitions.get(tp)
        batch = truth.at(offset) if truth is not None else None
        if truth is None or batch is None or batch.control or not batch.transactional:
            return False
        later = truth.committed[bisect_right(truth.bases, offset) :]
        markers = (b for b in later if b.marker and b.producer_id == batch.producer_id)
        end = next(markers, None)
        return end is not None and end.aborts

    def passed_over(self, place: Place) -> bool:
        """Whether the group does not get a record, as its transaction was aborted."""
        tp, offset = TPS[place[0]], place[1]
        return self.read_committed and (
            self._aborted(tp, offset) or excused(self.rules, tp, offset)
        )

    def _hangs_at(self, tp: TopicPartition) -> int | None:
        """The first record of a transaction that stays open for ever, as a loss has taken its end,
        if there is one and it holds the group up."""
        truth = self.rules.partitions.get(tp)
        if truth is None or not self.read_committed:
            return None
        stable = StableOffsets(truth.committed).at(truth.end)
        hangs = stable < truth.end and self.known.may_hang(tp, stable)
        return stable if hangs else None

    def reaches(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the group can come to this record."""
        hangs = self._hangs_at(tp)
        return hangs is None or offset < hangs

    def behind(self, number: int) -> int:
        """How many records of a partition the group cannot come to."""
        hangs = self._hangs_at(TPS[number])
        return 0 if hangs is None else self.rules.partitions[TPS[number]].end - hangs

    # -- the rules ------------------------------------------------------------------------------

    def given(self, member: str, tp: TopicPartition, offset: int, value: bytes) -> bool:
        """Checks what a member got; False if it comes from no transaction."""
        told = self.known.ledger.told.get(value)
        if told is None:
            return False
        self._given.add(value)
        self.known.count["share records of transactions given"] += 1
        if self.read_committed and not self.known.excused(told, tp, offset):
            if told.fate in (Fate.OPEN, Fate.NEVER):
                self._torn(member, tp, offset, f"the transaction of {value!r} is {told.fate.value}")
            elif self._aborted(tp, offset):
                self._torn(member, tp, offset, f"the transaction of {value!r} was aborted")
        return True

    def _torn(self, member: str, tp: TopicPartition, offset: int, why: str) -> None:
        self.rules.broken("T3", f"{tp}@{offset}: {member} gets it, and {why}")

    def sum_up(self, ledger: Ledger) -> None:
        """S1: what had to be delivered was delivered."""
        for told in self.known.ledger.transactions:
            if self.read_committed and not told.fate.is_committed:
                continue
            for tp, values in told.values.items():
                for value in values:
                    place = told.places.get(value)
                    if value in self._given or self.known.decision_lost(told):
                        continue
                    if place is None:
                        lost = bool(self.rules.partitions[tp].given_up) or not self.reaches(tp, 0)
                    else:
                        at = tp.partition, place[1]
                        lost = ledger.may_end(at) or ledger.ever_lost(at)
                        lost = lost or excused(self.rules, *place) or not self.reaches(*place)
                    if not lost:
                        what = f"{value!r} of {told.name}, which is {told.fate.value}"
                        self.rules.broken("S1", f"{tp}: {what}, was given to nobody")


class _Producer(Producer):
    """Small transactions, which are over soon: an open one holds the group up."""

    def __init__(self, *of: Any, pace: float, **how: Any) -> None:
        super().__init__(*of, **how)
        self._pace = pace

    async def _transaction(self) -> None:
        client, random = self.client, self.client.random
        told = self.told()
        joined: set[TopicPartition] = set()
        for _ in range(random.randint(1, 3)):
            tp = random.choice(TPS)
            if tp not in joined and not self.bumps:
                await self.join(told, lambda tp=tp: client.add(self.name, self.me, tp))  # type: ignore[misc]
            joined.add(tp)
            await self.send(told, tp)
            await client.sleep(random.choice((0.0, 0.0, 0.05, 0.3)))
        choice = random.random()
        if choice < LEFT:
            self.all.count["txn left"] += 1
            raise Fenced  # like a crash: the next producer, or the time-out, aborts it
        await self.end(told, commit=choice < LEFT + COMMITTED)
        await client.pause(0.02 / self._pace, 0.2 / self._pace)
