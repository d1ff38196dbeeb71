"""Markers of a transaction coordinator that was replaced while they were on their way."""

from __future__ import annotations

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import WriteTxnMarkersRequest
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios.script import Scenario, Stage
from highwater.simulation.wire_tap import REQUEST
from highwater.simulation.workloads.transactions_client import TOPIC, TRANSACTION, TxnClient

DATA = TopicPartition(TOPIC, 0)
DECISIONS = "__transaction_state"
NAME = "patient"
LATE_S = 4.0


class _Writer:
    """A transactional producer that keeps its producer epoch, and so its place in DATA."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
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

        await self._stage.insist(add)
        record = Record(None, value.encode(), 1_700_000_000_000)
        batch = build_batch(
            [record], producer_id=self._producer[0], producer_epoch=self._producer[1],
            base_sequence=self._sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        await self.client.send(NAME, DATA, bytes(batch))
        self._sequence += 1

    async def end(self, commit: bool) -> None:
        await self.client.end(NAME, self._producer, commit)

    async def read(self) -> list[str]:
        """All committed values."""
        found, _, _ = await self.client.read(DATA, 0)
        return [value.decode() for _, value in found]


async def late_marker(stage: Stage) -> None:
    """A commit marker is held on its way while another coordinator takes the transaction over and
    ends it.  The producer begins its next transaction under the same epoch; then the marker comes.
    It must not commit what is open there now, which its producer aborts in the end."""
    await stage.start(1, 2, 3)
    writer = _Writer(stage)
    await writer.begin()
    name, _ = await writer.client.coordinator(TRANSACTION, NAME)
    coordinator = int(name.rpartition("-")[2])
    leader, next_one = (broker for broker in (1, 2, 3) if broker != coordinator)
    await stage.insist(lambda: stage.create(TOPIC, [leader, coordinator, next_one], 1))
    await stage.whole()
    await writer.write("kept")
    held = stage.arm(WriteTxnMarkersRequest.API_KEY, REQUEST, LATE_S, coordinator, leader)
    await writer.end(commit=True)
    await stage.until(lambda: held.fired, "the marker is on its way")
    for tp in [tp for tp in stage.rules.partitions if tp.topic == DECISIONS]:
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


SCENARIOS = (
    Scenario("late-marker", "a marker of a former coordinator meets the next transaction",
             Shape(brokers=3, min_isr=2, lag_ms=3000), late_marker),
)  # fmt: skip
