"""A compacted topic whose records come in transactions.

One transactional producer sets a few keys again and again, under one transactional id, and commits,
aborts or leaves each transaction.  Segments are so small that the cleaners of all replicas are at
work all the time.  They must not count a record of an aborted transaction as its key's last one,
and must keep a transaction's marker as long as its records (kafka.log.CleanedTransactionMetadata).

* T3: a consumer under read_committed never sees a value whose transaction was not to be committed.
* C2: a value is at one offset.
* C4: in the end each key has its last committed value, or a later one of unknown fate; so say the
  log's consumer, and the disk of every replica.
* T7: in the end every transaction of the log has its marker, on every replica.

What a careless power loss took is excused: its record, its marker, or its decision.  So is a
replica that was away while a cleaner that had not heard of it removed markers (see `compacted`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import (
    TRANSACTIONAL,
    batches,
    build_batch,
    marker_of,
    records_of_batch,
)
from highwater.simulation.rules.allowed_losses import (
    DECISIONS,
    Moment,
    gave_up,
    lost_between,
    moment,
    moment_of,
)
from highwater.simulation.workloads.compacted import TOPIC as SMALL_SEGMENTS
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.persistent_calls import LOST, attempt
from highwater.simulation.workloads.plain_client import STAMP_MS, Failed
from highwater.simulation.workloads.transactional.transaction_ledger import Fate
from highwater.simulation.workloads.transactional.transaction_workload import TIMEOUT_MS
from highwater.simulation.workloads.transactional.transactions_client import (
    READ_COMMITTED,
    TRANSACTION,
    TxnClient,
)

if TYPE_CHECKING:
    from highwater.world.sim import Host

TOPIC, NAME = "accounts", "cashier"
TP = TopicPartition(TOPIC, 0)
KEYS = 6
STABLE_S = 30.0


@dataclass(slots=True)
class _Told:
    """One transaction; `begun` and `sealed` are the states of TP's log and of the decisions' log
    before its first record, and when the next one was let in, so that its marker was there."""

    number: int
    begun: tuple[Moment, Moment]
    fate: Fate = Fate.OPEN
    sealed: tuple[Moment, Moment] | None = None
    values: list[bytes] = field(default_factory=list)


def key_of(value: bytes) -> bytes:
    return value.partition(b"=")[0]


@dataclass
class KeyedTransactions(Part):
    """The topic from its clients' side."""

    needs = ("compacted", "transactions")
    topics = (Topic(TOPIC, config=SMALL_SEGMENTS),)
    client_kind, last = TxnClient, "bookkeeper"

    hosts: Mapping[int, Host] = field(default_factory=dict)
    """The brokers' machines."""

    def __post_init__(self) -> None:
        self._told: list[_Told] = []
        self._of: dict[bytes, _Told] = {}
        self._sequence = 0

    @classmethod
    def of(cls, shared: Shared) -> Self:
        shared.cluster.rules.compacted |= {TOPIC}
        return cls(*shared.told, shared.hosts)

    def clients(self) -> Works:
        return {"cashier": self.produce, "teller": self.consume}

    # -- producing ------------------------------------------------------------------------------

    async def produce(self, client: TxnClient) -> None:
        """One life of the producer after another, until cancelled."""
        random = client._world.random
        while True:
            try:
                me = await self._insist(client, lambda: client.init(NAME, TIMEOUT_MS))
                self._sequence = 0
                for _ in range(random.randint(1, 12)):
                    await self._transaction(client, me)
                    await client.pause(0.01 / self.pace, 0.1 / self.pace)
            except Failed:
                self.count["keyed: producers lost"] += 1
                await client.pause()

    async def _insist(
        self,
        client: TxnClient,
        call: Callable[[], Awaitable[Any]],
        noted: list[str] | None = None,
    ) -> Any:
        return await attempt(
            client, call, lambda: client.lose(TRANSACTION, NAME), self.errors, noted
        )

    def _moments(self) -> tuple[Moment, Moment]:
        return moment_of(self.rules.partitions.get(TP)), moment(self.rules, DECISIONS, NAME)

    async def _transaction(self, client: TxnClient, me: tuple[int, int]) -> None:
        random = client._world.random
        told = _Told(len(self._told), self._moments())
        await self._insist(client, lambda: client.add(NAME, me, TP))
        for earlier in self._told:
            earlier.sealed = earlier.sealed or self._moments()
        self._told.append(told)
        for _ in range(random.choice((1, 2, 3, 10))):  # the longest go over several segments
            await self._send(client, me, told)
            await trio.sleep(random.choice((0.0, 0.0, 0.05, 0.3)))
        choice = random.random()
        if choice < 0.05:
            told.fate = Fate.NEVER
            raise Failed("LEFT")  # like a crash: its next life, or the time-out, aborts it
        await self._end(client, me, told, commit=choice < 0.65)

    async def _send(self, client: TxnClient, me: tuple[int, int], told: _Told) -> None:
        key = b"key-%d" % client._world.random.randrange(KEYS)
        value = b"%s=%d.%d%s" % (key, told.number, len(told.values), b"." * 20)
        batch = build_batch(
            [Record(key, value, STAMP_MS)], producer_id=me[0], producer_epoch=me[1],
            base_sequence=self._sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        self._of[value] = told
        told.values.append(value)
        await attempt(
            client, lambda: client.send(NAME, TP, bytes(batch)), lambda: client.forget(TP),
            self.errors,
        )  # fmt: skip
        self._sequence += 1
        self.count["keyed: acked"] += 1

    async def _end(
        self, client: TxnClient, me: tuple[int, int], told: _Told, *, commit: bool
    ) -> None:
        noted: list[str] = []
        told.fate = Fate.UNKNOWN if commit else Fate.NEVER
        try:
            await self._insist(client, lambda: client.end(NAME, me, commit), noted)
        except Failed:
            if not any(name in LOST for name in noted):
                told.fate = Fate.NEVER
            raise
        if commit:
            told.fate = Fate.COMMITTED
        self.count["keyed: committed" if commit else "keyed: aborted"] += 1
        if any(name in LOST for name in noted):
            raise Failed("UNCERTAIN")  # a former EndTxn may still come: a new epoch fences it

    # -- consuming ------------------------------------------------------------------------------

    async def consume(self, client: TxnClient) -> None:
        """Reads under read_committed, from the start again now and then, until cancelled."""
        position = 0
        while True:
            try:
                found, position, _ = await client.read(TP, position)
                self._seen(found)
                if client._world.random.random() < 0.02:
                    position = 0
            except Failed as failed:
                self.errors[failed.name] += 1
                client.forget(TP)
            await client.pause(0.02 / self.pace, 0.1 / self.pace)

    def _seen(self, found: list[tuple[int, bytes]]) -> None:
        self.count["keyed: read"] += len(found)
        for offset, value in found:
            told = self._of.get(value)
            if told is None:
                self.rules.broken("C7", f"{TP}@{offset} holds {value!r}, which nobody sent")
            elif told.fate in (Fate.OPEN, Fate.NEVER) and not self._excused(told):
                self.rules.broken(
                    "T3", f"{TP}@{offset}: {value!r} is visible, and its transaction is "
                    f"{told.fate.value}"
                )  # fmt: skip

    # -- the verdict ----------------------------------------------------------------------------

    def _excused(self, told: _Told) -> bool:
        """Whether a loss took a record of it, its marker, or its decision."""
        until = told.sealed or (None, None)
        here = gave_up(self.rules.partitions.get(TP), told.begun[0], until[0])
        return here or lost_between(self.rules, DECISIONS, NAME, told.begun[1], until[1])

    def _missed_markers(self, broker: int | None) -> bool:
        """Whether this replica (or some) was away while a cleaner did not know it."""
        truth = self.rules.partitions[TP]
        missed = any(
            truth.cleaned_unaware(away)
            for who, times in truth.absences.items()
            if broker is None or who == broker
            for away in times
        )
        self.count["keyed: excused by a cleaner unaware of an absence"] += missed
        return missed

    async def judge(self, client: TxnClient) -> None:
        """Judges after the faults."""
        if not await self._stable(client):
            return
        found: list[tuple[int, bytes]] = []
        position, end = 0, -1
        while position < end or end < 0:
            try:
                end = await client.end_offset(TP, READ_COMMITTED) if end < 0 else end
                more, position, _ = await client.read(TP, position)
                found += more
            except Failed as failed:
                self.errors[failed.name] += 1
                client.forget(TP)
                await client.pause()
        self._seen(found)
        twice = [value for value, n in Counter(value for _, value in found).items() if n > 1]
        if twice:
            self.rules.broken("C2", f"{TP} holds {twice[0]!r} twice")
        self._last_values("a consumer", {key_of(value): value for _, value in found}, None)
        for broker, replica in self.rules.partitions[TP].replicas.items():
            folder = self.hosts[broker].disk.find(replica.mirror.path)
            if isinstance(folder, dict):
                logs = [folder[name] for name in sorted(folder) if name.endswith(".log")]
                self._look_at(broker, b"".join(bytes(log.data) for log in logs))  # type: ignore[union-attr]

    async def _stable(self, client: TxnClient) -> bool:
        """Waits until no transaction is open."""
        deadline = trio.current_time() + STABLE_S
        stable, end = -1, 0
        while trio.current_time() < deadline:
            try:
                stable = await client.end_offset(TP, READ_COMMITTED)
                end = await client.end_offset(TP, 0)
                if stable == end:
                    return True
            except Failed as failed:
                self.errors[failed.name] += 1
                client.forget(TP)
            await client.pause(0.2, 0.5)
        if not any(self._excused(told) for told in self._told):
            self.rules.broken("T7", f"{TP}: {STABLE_S:g} s after the faults the LSO is {stable}, "
                              f"and the HW {end}")  # fmt: skip
        return False

    def _last_values(self, who: str, last: dict[bytes, bytes], broker: int | None) -> None:
        allowed: dict[bytes, dict[bytes | None, None]] = {}
        for told in self._told:
            sure = told.fate is Fate.COMMITTED and not self._excused(told)
            may_be = told.fate in (Fate.COMMITTED, Fate.UNKNOWN) or self._excused(told)
            for value in told.values:
                key = key_of(value)
                if sure:
                    allowed[key] = {value: None}
                elif may_be:
                    allowed.setdefault(key, {None: None})[value] = None
        for key, values in sorted(allowed.items()):
            if last.get(key) not in values and not self._missed_markers(broker):
                self.rules.broken(
                    "C4", f"{TP}: {who} has {last.get(key)!r} for {key!r}, which must be one of "
                    f"{list(values)}"
                )  # fmt: skip
        self.count["keyed: keys compared"] += len(allowed)

    def _look_at(self, broker: int, data: bytes) -> None:
        """A replica's log, read from its disk as a consumer would read it."""
        pending: dict[int, dict[bytes, bytes]] = {}
        last: dict[bytes, bytes] = {}
        for header in batches(data):
            if header.is_control:
                marker = marker_of(data, header)
                ended = pending.pop(header.producer_id, {})
                if marker is not None and marker.commit:
                    last |= ended
                continue
            values = [record.value or b"" for record in records_of_batch(data, header)]
            if values:
                pending.setdefault(header.producer_id, {}).update(
                    (key_of(value), value) for value in values
                )
        if any(pending.values()):
            lost = any(self._excused(told) for told in self._told)
            if not lost and not self._missed_markers(broker):
                self.rules.broken("T7", f"{TP}: broker {broker} has no marker after {pending}")
            return
        self._last_values(f"broker {broker}", last, broker)
