"""Transactions in the simulated workload, and their rules.

Two transactional ids write to two partitions.  Each is used by one producer at a time.  Now and
then another producer takes it over (a hijack) while the first goes on without knowing it (a
zombie).  A transaction sends a few batches, now and then the offset of a group, and is committed,
aborted, or abandoned until it times out.  Its outcome, as the client knows it, is COMMITTED, NEVER,
or UNKNOWN if an answer was lost.

* T1: a producer that reads its partition inside its transaction does not see the records.
* T3: a record is visible under read_committed only if a commit was asked for, and then all are:
  every acknowledged record of a committed transaction, all or none of an unknown one, once and in
  order.
* T4: no transaction of a producer that was fenced before it asked can be committed.
* T5: the group's offset is that of the last committed transaction.
* T8, T9: no circle of reads, and circles of writes are counted, by the SQL that judges real runs
  (`transaction_lines`).
* T7: read_committed gives nothing at or above the LSO, and after the faults the LSO reaches the HW.
  An answer's LSO is that of the committed log below its HW (`rules/answers`).

An EndTxn whose answer was lost may still be in flight when its retry is answered.  It would then
end the producer's next transaction, because nothing in the request names its transaction.  So a
producer that has seen this raises its epoch before it goes on.

With --epoch-bumps most producers speak transaction.version 2: they add no partitions, get a new
epoch with each end, and need no such care (KIP-890).

Losses of records, markers, decisions or commits in a careless power loss are excused, with
everything that depends on them (`allowed_losses`).  So are records that somebody was asked to
delete (`trimmed_transactions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Self

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.rules import sim_checks, txn_indexes
from highwater.simulation.rules.allowed_losses import (
    DECISIONS,
    GROUPS,
    Moment,
    excused,
    lost_between,
    moment,
)
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.persistent_calls import LOST, attempt
from highwater.simulation.workloads.plain_client import STAMP_MS, Failed, SimClient
from highwater.simulation.workloads.transactional import last_transactions, transaction_lines
from highwater.simulation.workloads.transactional.transaction_ledger import Fate, Ledger, Told
from highwater.simulation.workloads.transactional.transactions_client import (
    GROUP,
    READ_COMMITTED,
    TOPIC,
    TRANSACTION,
    TxnClient,
)

PARTITIONS = 2
TPS = tuple(TopicPartition(TOPIC, p) for p in range(PARTITIONS))
IDS = ("bank-0", "bank-1")
TIMEOUT_MS = 5000
STABLE_S = 60.0
"""How long time-outs, their detection, and markers may take after the faults, in all partitions."""
EARLIEST = -2
LOOK_S = 10.0
"""The least time for looking at one partition's offsets."""


class Fenced(Exception):
    """This producer no longer owns the transactional id, or cannot know."""


class Transactions(Part):
    """The clients, their ledger, and the verdict; the consumer reads at the pace."""

    flag = "transactions"
    help = "Transactional producers, hijacked, and their consumer."
    topics = (Topic(TOPIC, PARTITIONS, aimed=PARTITIONS),)
    coordinated = DECISIONS
    client_kind, last = TxnClient, "txn-reader"

    def __post_init__(self) -> None:
        self.ledger = Ledger()
        self.instances = 0
        self.ends: dict[TopicPartition, int] = {}
        """The end of the last read of each partition."""
        self.deleted: Mapping[TopicPartition, int] = defaultdict(int)
        """Records below may be gone."""
        self.bumps = False
        """Whether most producers speak transaction.version 2."""

    @classmethod
    def of(cls, shared: Shared) -> Self:
        part = super().of(shared)
        part.deleted = shared.cluster.requested.deletions
        part.bumps = shared.cluster.shape.epoch_bumps
        return part

    def clients(self) -> Works:
        producers = {f"producer-{name}": partial(self.produce, name=name) for name in IDS}
        return {**producers, "committed": self.consume}

    # -- producing ------------------------------------------------------------------------------

    async def produce(self, client: TxnClient, name: str) -> None:
        """Runs one producer after the other under the transactional id, until cancelled."""
        random = client._world.random
        async with trio.open_nursery() as nursery:
            while True:
                self.instances += 1
                bumps = self.bumps and random.random() < 0.8
                producer = Producer(self, client, name, self.instances, bumps=bumps)
                if random.random() < 0.4:  # this producer is hijacked while it goes on
                    nursery.start_soon(producer.run, random.randint(2, 6))
                    await trio.sleep(random.uniform(0.2, 3.0))
                else:
                    await producer.run(random.randint(1, 6))

    async def attempt(
        self,
        client: SimClient,
        call: Callable[[], Awaitable[Any]],
        lose: Callable[[], None],
        noted: list[str] | None = None,
    ) -> Any:
        """Calls until it succeeds; raises Failed for lasting errors, and after a while."""
        return await attempt(client, call, lose, self.errors, noted)

    # -- consuming ------------------------------------------------------------------------------

    async def consume(self, client: TxnClient) -> None:
        """Reads under read_committed, until cancelled."""
        positions = dict.fromkeys(TPS, 0)
        while True:
            for tp in TPS:
                try:
                    found, positions[tp], lso = await client.read(tp, positions[tp])
                except Failed as failed:
                    self.errors[failed.name] += 1
                    if failed.name == "OFFSET_OUT_OF_RANGE" and positions[tp] < self.deleted[tp]:
                        # the rules compare what is read from there on with the truth
                        positions[tp] = self.deleted[tp]
                    client.forget(tp)
                    await client.pause()
                    continue
                self.seen(tp, found, lso)
            await client.pause(0.02 / self.pace, 0.1 / self.pace)

    def seen(self, tp: TopicPartition, found: list[tuple[int, bytes]], lso: int) -> None:
        self.count["txn polled"] += len(found)
        for offset, value in found:
            self.rules.consumed(tp, offset, value)
            told = self.ledger.told.get(value)
            if told is None:
                self.rules.broken("C7", f"{tp}@{offset} holds {value!r}, which nobody sent")
            elif told.fate in (Fate.OPEN, Fate.NEVER) and not self.excused(told, tp, offset):
                self.rules.broken(
                    "T3", f"{tp}@{offset}: {value!r} of {told.name} is visible, and its "
                    f"transaction is {told.fate.value}"
                )  # fmt: skip
            if offset >= lso:
                self.rules.broken("T7", f"{tp}@{offset} was read, and the LSO is {lso}")

    # -- the verdict ----------------------------------------------------------------------------

    async def look(self, shared: Shared) -> None:
        await super().look(shared)
        await last_transactions.judge(shared.client(TxnClient, "last"), self.rules)
        compared = txn_indexes.compare(shared.cluster.nodes.values(), self.rules, TPS)
        self.count["txn index entries"] += compared

    def judge_by_sql(self) -> None:
        """Judges T8 and T9, if no loss leaves a transaction's fate open."""
        transactions = self.ledger.transactions
        partitions = self.rules.partitions
        given_up = any(tp in partitions and partitions[tp].given_up for tp in TPS)
        if given_up or any(self.decision_lost(told) for told in transactions):
            self.count["txn circles not judged"] += 1
            return
        broken, counted = sim_checks.judge_transactions(
            TOPIC, transaction_lines.lines(transactions)
        )
        self.count["txn write circles"] += counted
        for check, found, example in broken:
            self.rules.broken(check, f"{found} times, for instance {example}")

    async def judge(self, client: TxnClient) -> None:
        """Judges after the faults: LSO, a full read, offsets."""
        places: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        order: dict[TopicPartition, list[bytes]] = {}
        ended = trio.current_time() + STABLE_S
        for tp in TPS:
            end = await self._stable(client, tp, max(ended, trio.current_time() + LOOK_S))
            if end is None:
                return
            self.ends[tp] = end
            position, values = await self._begin(client, tp), order.setdefault(tp, [])
            while position < end:
                found, position, lso = await self.attempt(
                    client, lambda tp=tp, at=position: client.read(tp, at),  # type: ignore[misc]
                    lambda tp=tp: client.forget(tp),  # type: ignore[misc]
                )  # fmt: skip
                self.seen(tp, found, lso)
                for offset, value in found:
                    values.append(value)
                    places.setdefault(value, []).append((tp, offset))
        for told in self.ledger.transactions:
            self._judge(told, places)
        for tp, values in order.items():
            self._in_order(tp, values)
        for name in IDS:
            await self._offset(client, name)

    async def _begin(self, client: TxnClient, tp: TopicPartition) -> int:
        """The offset at which the partition's log begins."""
        if not self.deleted[tp]:
            return 0
        return int(
            await self.attempt(
                client, lambda: client.list_offset(tp, EARLIEST), lambda: client.forget(tp)
            )
        )

    def excused(self, told: Told, tp: TopicPartition, offset: int) -> bool:
        """Whether an expected loss leaves this record's fate open."""
        if offset >= self.ends.get(tp, offset + 1) or excused(self.rules, tp, offset):
            return True
        return self.decision_lost(told)

    def decision_lost(self, told: Told) -> bool:
        since = told.begun.get(DECISIONS)
        return since is not None and lost_between(
            self.rules, DECISIONS, told.transactional_id, since, told.decided
        )

    async def _stable(self, client: TxnClient, tp: TopicPartition, deadline: float) -> int | None:
        stable = end = -1
        while trio.current_time() < deadline:
            try:
                stable = await client.end_offset(tp, READ_COMMITTED)
                end = await client.end_offset(tp, 0)
                if stable == end:
                    return end
            except Failed as failed:
                self.errors[failed.name] += 1
                client.forget(tp)
            await client.pause(0.2, 0.5)
        if stable >= 0 and self.may_hang(tp, stable):
            self.count["txn hanging, expected"] += 1
            return stable
        self.rules.broken("T7", f"{tp}: {STABLE_S:g} s after all transactions have timed out the "
                          f"LSO is {stable}, and the HW {end}")  # fmt: skip
        return None

    def may_hang(self, tp: TopicPartition, stable: int) -> bool:
        """Whether a transaction that is open there may stay open, because its marker was lost, or
        all that its coordinator knew of it.  Then the markers have an epoch that the partition
        takes for a former producer's.
        """
        return excused(self.rules, tp, stable) or any(
            self.decision_lost(told)
            and all(at >= stable for place, at in told.places.values() if place == tp)
            for told in self.ledger.transactions
        )

    def _judge(self, told: Told, places: dict[bytes, list[tuple[TopicPartition, int]]]) -> None:
        values = [value for sent in told.values.values() for value in sent]
        there = [value for value in values if value in places]
        for value in there:
            if len(places[value]) > 1:
                self.rules.broken("C2", f"{value!r} is there twice: {places[value]}")
        missing = [v for v in values if v not in places and not self._may_miss(told, v)]
        self.count["txn lost as expected"] += len(values) - len(there) - len(missing)
        if told.fate is Fate.COMMITTED and missing:
            self.rules.broken("T3", f"{told.name} was committed, and {missing[0]!r} is missing")
        if told.fate is Fate.UNKNOWN and there and missing:
            self.rules.broken("T3", f"{told.name} is torn: {there} of {values}")

    def _may_miss(self, told: Told, value: bytes) -> bool:
        place = told.places.get(value)
        if place is None:
            sent_to = (tp for tp, values in told.values.items() if value in values)
            return self.decision_lost(told) or any(self.deleted[tp] for tp in sent_to)
        return place[1] < self.deleted[place[0]] or self.excused(told, *place)

    def _in_order(self, tp: TopicPartition, values: list[bytes]) -> None:
        where = {value: index for index, value in enumerate(values)}
        for told in self.ledger.transactions:
            at = [where[value] for value in told.values.get(tp, []) if value in where]
            if at != sorted(at):
                self.rules.broken("C10", f"{tp}: {told.name} is not in the order of sending")

    async def _offset(self, client: TxnClient, name: str) -> None:
        mine = [t for t in self.ledger.transactions if t.transactional_id == name]
        allowed = {-1}
        open_ = False
        for told, after in zip(mine, [*mine[1:], None], strict=False):  # `mine` may be empty
            if told.offset is None:
                continue
            since = told.begun.get(GROUPS, Moment(0, 0))
            until = after.let_in if after is not None else None
            lost = lost_between(self.rules, GROUPS, name, since, until)
            open_ = open_ or lost
            if told.fate is Fate.COMMITTED and not lost and not self.decision_lost(told):
                allowed = {told.offset}
            elif told.fate in (Fate.COMMITTED, Fate.UNKNOWN) or lost:
                allowed.add(told.offset)
        if allowed == {-1}:
            return
        try:
            found = await self.attempt(
                client, lambda: client.committed_offset(name), lambda: client.lose(GROUP, name)
            )
        except Failed as failed:
            if failed.name == "UNSTABLE_OFFSET_COMMIT" and open_:
                return  # its marker was lost
            self.rules.broken("L1", f"the offset of group {name} cannot be read: {failed}")
            return
        if found not in allowed:
            self.rules.broken("T5", f"group {name} is at {found}, and may be at {sorted(allowed)}")


class Producer:
    """One producer instance under a transactional id."""

    def __init__(
        self,
        transactions: Transactions,
        client: TxnClient,
        name: str,
        instance: int,
        timeout_ms: int = TIMEOUT_MS,
        *,
        bumps: bool = False,
    ) -> None:
        self.all = transactions
        self.bumps = bumps
        self.client = client
        self.name = name
        self.instance = instance
        self.timeout_ms = timeout_ms
        self.me = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.uncertain = False

    def _lose(self) -> None:
        self.client.lose(TRANSACTION, self.name)

    def _moment(self, log: str) -> Moment:
        return moment(self.all.rules, log, self.name)

    async def join(self, told: Told, call: Callable[[], Awaitable[Any]]) -> None:
        """Adds to the transaction, at its coordinator, something to which it writes."""
        self._begins(told)
        await self.all.attempt(self.client, call, self._lose)
        told.let_in = told.let_in or self._moment(GROUPS)

    def _begins(self, told: Told) -> None:
        for log in (DECISIONS, GROUPS):
            told.begun.setdefault(log, self._moment(log))

    async def run(self, transactions: int) -> None:
        random = self.client._world.random
        try:
            await self.init((-1, -1))
            for _ in range(transactions):
                if self.uncertain:
                    await self.init(self.me)
                await self._transaction()
                await trio.sleep(random.uniform(0, 0.3))
        except (Failed, Fenced):
            self.all.count["txn producers lost"] += 1

    async def init(self, expected: tuple[int, int]) -> None:
        before = self._moment(DECISIONS)
        self.me = await self.all.attempt(
            self.client, lambda: self.client.init(self.name, self.timeout_ms, expected), self._lose
        )
        self._given(before)
        self.uncertain = False
        self.all.count["txn inits"] += 1

    def _given(self, before: Moment) -> None:
        """Notes this producer's new identity."""
        ledger = self.all.ledger
        if self.me > ledger.newest.get(self.name, (-1, -1)):
            ledger.newest[self.name] = self.me
            ledger.given[self.name] = (before, self._moment(DECISIONS))
        self.sequences.clear()

    def told(self) -> Told:
        """Makes the record of a transaction that begins."""
        ledger = self.all.ledger
        number = len(ledger.transactions)
        told = Told(f"{self.name}#{self.instance}.{number}", self.name, number)
        ledger.transactions.append(told)
        return told

    async def _transaction(self) -> None:
        client, random = self.client, self.client._world.random
        told = self.told()
        joined: dict[TopicPartition, None] = {}
        for _ in range(random.randint(1, 4)):
            tp = random.choice(TPS)
            if tp not in joined and not self.bumps:
                await self.join(told, lambda tp=tp: client.add(self.name, self.me, tp))  # type: ignore[misc]
                joined[tp] = None
                # after a delay here the producer may be fenced before its first batch arrives
                await trio.sleep(random.choice((0.0, 0.0, 0.0, 0.1, 0.5, 2.0)))
            await self.send(told, tp)
            if self.bumps and tp not in joined:
                joined[tp] = None
                await trio.sleep(random.choice((0.0, 0.0, 0.0, 0.1, 0.5, 2.0)))
            await trio.sleep(random.choice((0.0, 0.0, 0.05, 0.3)))
        if random.random() < 0.4:
            await self._offsets(told)
        if random.random() < 0.2:
            await self._read_own(told)
        choice = random.random()
        if choice < 0.1:
            self.all.count["txn left"] += 1
            raise Fenced  # like a crash: the next producer, or the time-out, aborts it
        await self.end(told, commit=choice < 0.75)

    async def send(self, told: Told, tp: TopicPartition) -> None:
        random, count = self.client._world.random, len(told.values.get(tp, []))
        values = [
            f"{told.name}/{tp.partition}.{count + i}".encode() for i in range(random.randint(1, 3))
        ]
        sequence = self.sequences.get(tp, 0)
        batch = build_batch(
            [Record(None, value, STAMP_MS) for value in values],
            producer_id=self.me[0],
            producer_epoch=self.me[1],
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        for value in values:
            self.all.ledger.told[value] = told
        if self.bumps:
            self._begins(told)
        base = await self.all.attempt(
            self.client,
            lambda: self.client.send(self.name, tp, bytes(batch), bumps=self.bumps),
            lambda: self.client.forget(tp),
        )
        told.let_in = told.let_in or self._moment(GROUPS)
        self.sequences[tp] = sequence + len(values)
        told.values.setdefault(tp, []).extend(values)
        self.all.count["txn acked"] += len(values)
        if base >= 0:
            for offset, value in enumerate(values, base):
                told.places[value] = (tp, offset)
                self.all.rules.acknowledged(tp, offset, value)

    async def _offsets(self, told: Told) -> None:
        client = self.client
        if not self.bumps:
            await self.join(told, lambda: client.add_offsets(self.name, self.me))
        await self.all.attempt(
            client,
            lambda: client.commit_offset(self.name, self.me, told.number, bumps=self.bumps),
            lambda: client.lose(GROUP, self.name),
        )
        told.offset = told.number
        self.all.count["txn offsets"] += 1

    async def _read_own(self, told: Told) -> None:
        """T1: the transaction's records are not visible yet."""
        for tp in told.values:
            try:
                end = await self.client.end_offset(tp, READ_COMMITTED)
                found, _, lso = await self.client.read(tp, max(0, end - 5), 0)
            except Failed as failed:
                self.all.errors[failed.name] += 1
                self.client.forget(tp)
                continue
            self.all.seen(tp, found, lso)
            told.read += [(tp, offset, value) for offset, value in found]
            self.all.count["txn reads inside"] += len(found)
            own = [value for _, value in found if self.all.ledger.told.get(value) is told]
            if own:
                self.all.rules.broken("T1", f"{told.name} reads {own} before its commit")

    async def end(self, told: Told, *, commit: bool) -> None:
        fenced_before = self.me < self.all.ledger.newest[self.name]
        before = self._moment(DECISIONS)
        noted: list[str] = []
        if commit:
            told.fate = Fate.UNKNOWN  # from here on it may be visible
        try:
            after = await self.all.attempt(
                self.client,
                lambda: self.client.end(self.name, self.me, commit, bumps=self.bumps),
                self._lose,
                noted,
            )
        except Failed as failed:
            if commit and not any(name in LOST for name in noted):
                told.fate = Fate.NEVER
            raise Fenced from failed
        if self.bumps:
            self.me = after
            self._given(before)
        else:
            self.uncertain = any(name in LOST for name in noted)
        told.decided = self._moment(DECISIONS)
        told.fate = Fate.COMMITTED if commit else Fate.NEVER
        self.all.count["txn committed" if commit else "txn aborted"] += 1
        fence = self.all.ledger.given[self.name]
        if self.bumps and not commit:
            return  # who was fenced may learn of the abort in this way, and then goes on
        if fenced_before and not lost_between(self.all.rules, DECISIONS, self.name, *fence):
            self.all.rules.broken("T4", f"{told.name} was ended by a producer that was fenced")
