"""Compacted topics, and replicas that miss what is compacted away."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import count

import trio

from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.cluster import PORT, Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage
from highwater.simulation.workloads.compacted import (
    COMPACTED,
    DELETE_RETENTION_S,
    TOPIC,
    CompactedTopic,
    KeyedClient,
)
from highwater.simulation.workloads.compacted import TP as KEYED
from highwater.simulation.workloads.transactional.transactions_client import TRANSACTION, TxnClient


async def _with_a_compacted_topic(stage: Stage) -> tuple[KeyedClient, CompactedTopic, int]:
    """Its client, the topic as its clients see it, and its leader."""
    stage.rules.compacted = frozenset({COMPACTED})
    await stage.start(1, 2, 3)
    client = stage.new_client_of(KeyedClient, "keyed")
    await stage.insist(lambda: client.create_topic(COMPACTED, 1, 3, TOPIC))
    await stage.whole()
    return client, CompactedTopic(stage.rules), stage.leader(KEYED)


async def lossy_compacted(stage: Stage) -> None:
    """The same for a compacted topic: records after the loss are acknowledged at offsets that were
    acknowledged before, and the loss excuses no more than it took."""
    client, topic, leader = await _with_a_compacted_topic(stage)
    async with trio.open_nursery() as clients:
        clients.start_soon(client.run, partial(topic.produce, client))
        await stage.until(lambda: len(topic.acked) > 50, "some records are acknowledged")
        for other in {1, 2, 3} - {leader}:
            stage.cluster.kill(other)
        await stage.until(lambda: stage.isr(KEYED) == (leader,), "it is alone in the ISR")
        end = stage.end(leader, KEYED)
        await stage.until(lambda: max(topic.acked) > end + 20, "more are acknowledged")
        before, epoch = dict(topic.acked), stage.epoch(KEYED)
        stage.lose_power(leader)
        stage.check(stage.end(leader, KEYED) < max(before), "nothing was lost")
        stage.cluster.power_on(leader)
        await stage.until(lambda: stage.epoch(KEYED) > epoch, "it leads anew")
        for other in {1, 2, 3} - {leader}:
            stage.cluster.start(other)
        await stage.until(lambda: max(topic.acked) > max(before), "the log is as long as before")
        await stage.whole()
        clients.cancel_scope.cancel()
    again = [at for at, acked in before.items() if topic.acked[at] != acked]
    stage.check(again, "no offset was acknowledged once more")
    topic.judge(await topic.read_all(stage.new_client_of(KeyedClient, "reader")), stage.cluster)
    stage.check(stage.rules.expected_losses > 0, "the loss was not counted")
    stage.in_order(f"broker-{leader} .*loses power", f"broker-{leader} .*{KEYED}: leads, epoch")


async def compacted_while_away(stage: Stage) -> None:
    """A broker misses a leader epoch, and all of that epoch's records are compacted away before it
    is back, so that it never hears of the epoch.  Then it leads, and a replica whose log ends in
    that epoch comes back: it is cut where the epoch before ended, far below its HW, and its
    compacted log has nothing that ends there."""
    client, topic, leader = await _with_a_compacted_topic(stage)
    away, last = {1, 2, 3} - {leader}

    def epochs(broker: int) -> set[int]:
        return {epoch for _, epoch, _ in stage.log(broker, KEYED)}

    async with trio.open_nursery() as clients:
        clients.start_soon(client.run, partial(topic.produce, client))
        await stage.until(lambda: len(topic.acked) > 50, "some records are acknowledged")
        stage.cluster.kill(away)
        await stage.until(lambda: away not in stage.isr(KEYED), "it has left the ISR")
        missed = stage.epoch(KEYED)
        await stage.until(lambda: epochs(last) == {missed}, "older epochs are compacted away")
        stage.cluster.stop(last)  # which writes its HW down
        await stage.until(lambda: not stage.cluster.nodes[last].running, "it has stopped")
        await stage.until(lambda: missed not in epochs(leader), "so is this one, at its leader")
        stage.cluster.start(away)
        await stage.until(lambda: away in stage.isr(KEYED), "the first one is back")
        await stage.lead(away, KEYED)
        stage.cluster.start(last)
        await stage.whole()
        clients.cancel_scope.cancel()
    topic.judge(await topic.read_all(stage.new_client_of(KeyedClient, "reader")), stage.cluster)
    stage.in_order(
        f"broker-{last} .*{KEYED}: follows {away}, epoch",
        f"broker-{last}.*{KEYED}: truncating from",
        f"{KEYED}: ISR expanded to .*{last}",
    )


class _Deleting:
    """A client that deletes keys, and one with transactions upon the same topic."""

    def __init__(self, stage: Stage, client: KeyedClient, topic: CompactedTopic) -> None:
        self.stage = stage
        self.client = client
        self.topic = topic
        self.cashier = stage.new_client_of(TxnClient, "cashier")
        self._numbers, self._sequences = count(), count()
        self._me = (-1, -1)

    async def put(self, key: bytes, value: bytes | None) -> None:
        """None deletes the key."""
        self.topic.sent.setdefault(key, {})[value] = None
        batch = bytes(build_batch([Record(key, value, self.client.wall_ms())]))

        async def produce() -> None:
            self.client.forget(KEYED)
            offset = await self.client.produce(KEYED, batch, -1)
            self.topic.acknowledged(offset, [(key, value)])

        await self.stage.insist(produce)

    async def fill(self) -> None:
        """Other keys, whose segments the cleaners take, until a deletion is long over."""
        until = self.stage.rules.now() + 3 * DELETE_RETENTION_S
        while self.stage.rules.now() < until:
            await self.put(b"other", b"%d" % next(self._numbers) + b"." * 100)
            await trio.sleep(0.02)

    async def init(self) -> None:
        async def once() -> None:
            self._me = await self.cashier.init("cashier", 60_000)

        await self.stage.insist(once)

    async def begin(self, value: bytes) -> None:
        """Begins a transaction with one record."""
        me, cashier = self._me, self.cashier
        self.topic.sent.setdefault(b"aborted", {})[value] = None
        record = Record(b"aborted", value, self.client.wall_ms())
        await self.stage.insist(lambda: cashier.add("cashier", me, KEYED))
        batch = build_batch(
            [record], producer_id=me[0], producer_epoch=me[1],
            base_sequence=next(self._sequences), attributes=TRANSACTIONAL,
        )  # fmt: skip
        await self.stage.insist(lambda: cashier.send("cashier", KEYED, bytes(batch)))

    async def end(self, *, commit: bool) -> None:
        await self.stage.insist(lambda: self.cashier.end("cashier", self._me, commit=commit))

    async def committed(self) -> list[bytes]:
        """The values that a consumer sees."""
        values: list[bytes] = []

        async def read() -> None:
            self.cashier.forget(KEYED)
            values.extend(value for _, value in (await self.cashier.read(KEYED, 0))[0])

        await self.stage.insist(read)
        return values

    def kept(self, broker: int, offsets: Iterable[int]) -> list[int]:
        bases = [base for base, _, _ in self.stage.log(broker, KEYED)]
        return [offset for offset in offsets if offset in bases]


async def deletions_wait(stage: Stage) -> None:
    """A replica is away for longer than delete.retention.ms.  Meanwhile a key of its log is
    deleted, and a transaction that it has a record of is aborted.  Tombstone and marker are still
    there when it comes back, and gone once it has them."""
    client, topic, leader = await _with_a_compacted_topic(stage)
    work = _Deleting(stage, client, topic)
    away, other = {1, 2, 3} - {leader}
    await work.put(b"deleted", b"a value")
    await work.init()
    await work.begin(b"never")
    await stage.until(lambda: stage.end(away, KEYED) == 2, "all replicas have it")
    stage.cluster.kill(away)
    await stage.until(lambda: away not in stage.isr(KEYED), "it has left the ISR")
    work.cashier.lose(TRANSACTION, "cashier")  # the coordinator may have been there
    await work.end(commit=False)
    await stage.until(lambda: stage.end(leader, KEYED) == 3, "the marker is there")
    await work.put(b"deleted", None)
    await work.begin(b"the value")
    await work.end(commit=True)
    await work.fill()
    for broker in (leader, other):
        found = work.kept(broker, range(4))
        stage.check(found == [2, 3], f"{broker} has kept {found}, not marker and tombstone")
    stage.cluster.start(away)
    await stage.whole()
    await work.fill()
    for broker in (1, 2, 3):
        stage.check(not work.kept(broker, range(4)), f"{broker} never forgets")
    await stage.lead(away, KEYED)
    values = await work.committed()
    stage.check(values[0] == b"the value" and b"never" not in values, f"it shows {values}")
    topic.judge(await topic.read_all(stage.new_client_of(KeyedClient, "reader")), stage.cluster)


async def copied_to_its_end(stage: Stage) -> None:
    """A topic becomes a compacted one, which drops records without a key, while its active segments
    are empty, as a cut leaves them.  A new replica still comes to the end of the log."""
    stage.rules.compacted = frozenset({TP.topic})
    await stage.start(1, 2)
    for value in ("one", "two"):
        await stage.send(value)
    await stage.until(lambda: stage.high_watermark(2) == 2, "both replicas have both")
    for broker in (1, 2):
        services = stage.cluster.nodes[broker].services
        assert services is not None
        log = services.replicas.partitions[TP].log
        assert log is not None
        log.roll()

    async def set_policy(policy: str) -> None:
        await stage.client.alter_topic(("broker-1", PORT), TP.topic, "cleanup.policy", policy)

    await stage.insist(lambda: set_policy("compact"))
    await stage.until(lambda: len(stage.log(1)) < 2, "the cleaner was there")
    await stage.insist(lambda: stage.client.reassign(TP, [3, 1]))
    await stage.until(lambda: stage.isr() == (1, 3), "3 has all, and 2 is gone")
    await stage.lead(3)
    await stage.insist(lambda: set_policy("delete"))  # that takes records without a key
    await stage.insist(lambda: stage.send("three"))
    stage.check(stage.place(3)[1] == 3, "an offset is given twice")


SCENARIOS = (
    Scenario(
        "lossy-compacted",
        "the same of a compacted topic",
        Shape(brokers=3, min_isr=1, lag_ms=2000, cleaner_backoff_ms=700),
        lossy_compacted,
    ),
    Scenario(
        "compacted-while-away",
        "a leader that never saw an epoch, as compaction left none of its records",
        Shape(brokers=3, min_isr=1, lag_ms=2000, cleaner_backoff_ms=300),
        compacted_while_away,
    ),
    Scenario(
        "deletions-wait",
        "tombstones and markers stay while a replica is away",
        Shape(brokers=3, min_isr=1, lag_ms=2000, cleaner_backoff_ms=300),
        deletions_wait,
    ),
    Scenario(
        "copied-to-its-end",
        "a new replica of a log whose last records are compacted away",
        Shape(brokers=3, min_isr=1, lag_ms=2000, cleaner_backoff_ms=300),
        copied_to_its_end,
    ),
)
