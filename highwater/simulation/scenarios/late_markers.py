"""Markers and requests so long on their way that their producer's next transaction is open."""

from __future__ import annotations

from functools import partial

import trio

from highwater.kafka.topic_names import TRANSACTION_STATE_TOPIC
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import WriteTxnMarkersRequest
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios.script import Scenario, Stage
from highwater.simulation.wire_tap import REQUEST
from highwater.simulation.workloads.transactional.transactions_client import (
    TOPIC,
    TRANSACTION,
    TxnClient,
)

DATA = TopicPartition(TOPIC, 0)
NAME = "patient"
LATE_S = 4.0
AFTER_A_RETRY_S = 8.0
"""Longer than request.timeout.ms of the simulated brokers."""


class _Writer:
    """A transactional producer that keeps its producer epoch, and so its place in DATA, unless it
    `bumps` the epoch with each end (transaction.version 2)."""

    def __init__(self, stage: Stage, *, bumps: bool = False) -> None:
        self._stage = stage
        self._bumps = bumps
        self.client = stage.new_client_of(TxnClient, "writer")
        self._producer = (-1, -1)
        self._sequence = 0

    async def begin(self) -> None:
        async def init() -> None:
            self.client.lose(TRANSACTION, NAME)
            self._producer = await self.client.init(NAME, 60_000)

        await self._stage.insist(init)

    async def write(self, value: str) -> None:
        """A record in the transaction that is open, or in a new one."""

        async def add() -> None:
            self.client.lose(TRANSACTION, NAME)
            await self.client.add(NAME, self._producer, DATA)

        if not self._bumps:
            await self._stage.insist(add)
        await self._stage.insist(partial(self.send, value))
        self._sequence += 1

    async def send(self, value: str) -> None:
        """One attempt to send a record, as the next one of the producer."""
        record = Record(None, value.encode(), 1_700_000_000_000)
        batch = build_batch(
            [record], producer_id=self._producer[0], producer_epoch=self._producer[1],
            base_sequence=self._sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        await self.client.send(NAME, DATA, bytes(batch), bumps=self._bumps)

    async def end(self, commit: bool) -> None:
        before = self._producer
        self._producer = await self.client.end(NAME, before, commit, bumps=self._bumps)
        if self._producer != before:
            self._sequence = 0

    async def read(self) -> list[str]:
        """All committed values."""
        found, _, _ = await self.client.read(DATA, 0)
        return [value.decode() for _, value in found]

    def as_before(self) -> _Writer:
        """Another one that sends what this one could have sent a while ago."""
        former = _Writer(self._stage, bumps=self._bumps)
        former._producer, former._sequence = self._producer, self._sequence
        return former


async def _begin(stage: Stage, *, bumps: bool = False) -> tuple[_Writer, int, int, int]:
    """A writer, its coordinator, the leader of its partition, and a third broker."""
    await stage.start(1, 2, 3)
    writer = _Writer(stage, bumps=bumps)
    await writer.begin()
    name, _ = await writer.client.coordinator(TRANSACTION, NAME)
    coordinator = int(name.rpartition("-")[2])
    leader, third = (broker for broker in (1, 2, 3) if broker != coordinator)
    await stage.insist(lambda: stage.create(TOPIC, [leader, coordinator, third], 1))
    await stage.whole()
    return writer, coordinator, leader, third


async def late_marker(stage: Stage) -> None:
    """A commit marker is held on its way while another coordinator takes the transaction over and
    ends it.  The producer begins its next transaction under the same epoch; then the marker comes.
    It must not commit what is open there now, which its producer aborts in the end."""
    writer, coordinator, leader, next_one = await _begin(stage)
    await writer.write("kept")
    held = stage.arm(WriteTxnMarkersRequest.API_KEY, REQUEST, LATE_S, coordinator, leader)
    await writer.end(commit=True)
    await stage.until(lambda: held.fired, "the marker is on its way")
    for tp in [tp for tp in stage.rules.partitions if tp.topic == TRANSACTION_STATE_TOPIC]:
        await stage.lead(next_one, tp)
    await writer.write("never")
    refused = f"broker-{leader}.* {DATA}: a marker for producer .* came from coordinator epoch"
    stage.check(not stage.happened(refused), "the marker came before the next transaction")
    with trio.move_on_after(2 * LATE_S):
        while not stage.happened(refused):
            found = await writer.read()
            stage.check(found == ["kept"], f"{found} is committed, of which one is not yet")
    stage.in_order(refused)
    await writer.end(commit=False)


async def marker_sent_again(stage: Stage) -> None:
    """An abort marker is held on its way until its coordinator gives the connection up, and sends
    it again over another one.  The producer begins its next transaction under the same epoch; then
    the first marker comes.  It must not abort what its producer commits in the end."""
    writer, coordinator, leader, _ = await _begin(stage)
    await writer.write("never")
    api_key = WriteTxnMarkersRequest.API_KEY
    held = stage.arm(api_key, REQUEST, AFTER_A_RETRY_S, coordinator, leader)
    await writer.end(commit=False)
    await stage.until(lambda: held.fired, "the marker is on its way")
    await writer.write("kept")  # once the marker is there that was sent again
    again = f"broker-{coordinator}.* markers for broker {leader}: no answer; again"
    passed_over = f"broker-{leader}.* markers of a connection that its coordinator gave up"
    stage.check(not stage.happened(passed_over), "the marker came before the next transaction")
    with trio.move_on_after(2 * AFTER_A_RETRY_S):
        while not stage.happened(passed_over):
            await stage.client.pause(0.2, 0.3)
    await writer.end(commit=True)
    found: list[str] = []
    with trio.move_on_after(2 * AFTER_A_RETRY_S):
        while found != ["kept"]:
            found = await writer.read()
    stage.check(found == ["kept"], f"{found} is committed in place of the second transaction")
    stage.in_order(again, passed_over)


async def late_requests(stage: Stage) -> None:
    """A producer of transaction.version 2 has ended a transaction, and is in the next one.  Then
    comes what it had sent in the first one: an EndTxn, whose answer was lost, and a batch.  Neither
    may end the open transaction, or be part of it.  (In version 1 the EndTxn would: the two
    transactions have the same epoch.)"""
    writer, _, _, _ = await _begin(stage, bumps=True)
    await writer.write("kept")
    late = writer.as_before()
    await writer.end(commit=True)
    await writer.write("never")
    for commit in (True, False):
        await stage.fails(partial(late.end, commit=commit), "PRODUCER_FENCED")
    await stage.fails(partial(late.send, "late"), "INVALID_PRODUCER_EPOCH")
    await writer.write("never, either")
    stage.check(await writer.read() == ["kept"], "a late request has committed what is open")
    await writer.end(commit=False)
    await writer.write("kept, too")
    await writer.end(commit=True)
    found: list[str] = []
    with trio.move_on_after(2 * LATE_S):
        while found != ["kept", "kept, too"]:
            found = await writer.read()
    stage.check(found == ["kept", "kept, too"], f"{found} is committed")


SCENARIOS = (
    Scenario("late-marker", "a marker of a former coordinator meets the next transaction",
             Shape(brokers=3, min_isr=2, lag_ms=3000), late_marker),
    Scenario("marker-sent-again", "a marker of a connection that was given up meets the next one",
             Shape(brokers=3, min_isr=2, lag_ms=3000), marker_sent_again),
    Scenario("late-requests", "an EndTxn and a batch of an ended transaction meet the next one",
             Shape(brokers=3, min_isr=2, lag_ms=3000), late_requests),
)  # fmt: skip
