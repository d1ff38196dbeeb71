"""An idempotent producer with up to five batches in flight, and a new epoch now and then.

It sends a burst of batches of one partition without waiting, as Kafka's own producer does, then
takes the answers in order.  Where one fails, the rest is sent again one at a time, from the first
batch that is not acknowledged: the leader must recognise those of the last five batches that it
has.  As long as the same process has led in the same leader epoch, an OUT_OF_ORDER_SEQUENCE_NUMBER
for such a retry means that it failed to (a leader that restarted or changed knows only one batch of
each producer, from its snapshot, as in Kafka).

After a burst that was acknowledged whole it may raise its producer epoch (KIP-360), and then, as a
zombie of itself, send one more batch of the old epoch.  That batch must be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.workload import FATAL, GIVE_UP_S, Workload, make_batch

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.sim_history import SendLines

IN_FLIGHT = 5
_EPOCH_ONE_IN = 12
_NEW_ID_ONE_IN = 40


@dataclass(slots=True)
class _Batch:
    values: list[bytes]
    data: bytes
    lines: SendLines
    acked: bool = False
    tries: int = 0


class Pipelined:
    """`leader_life` names the broker that leads a partition now, its life and its leader epoch."""

    def __init__(
        self,
        workload: Workload,
        client: SimClient,
        leader_life: Callable[[TopicPartition], tuple[int, int, int]],
    ) -> None:
        self._workload = workload
        self._client = client
        self._leader_life = leader_life
        self._id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._knows: dict[TopicPartition, tuple[int, int, int] | None] = {}
        """The broker that acknowledged a partition's last batch and so knows this producer's
        sequence.
        """
        self._count = 0

    async def run(self, tps: list[TopicPartition], rate: float) -> None:
        random = self._client.random
        while True:
            await trio.sleep(random.expovariate(rate))
            if self._id < 0:
                self._id, self._epoch = await self._workload.producer_id(self._client)
                self._sequences.clear()
                self._knows.clear()
            tp = random.choice(tps)
            if not await self._burst(tp, random.randint(1, IN_FLIGHT)):
                self._id = -1  # its sequence is lost: it begins again with another id
                continue
            if random.randrange(_NEW_ID_ONE_IN) == 0:
                self._id = -1
            elif random.randrange(_EPOCH_ONE_IN) == 0:
                await self._new_epoch(tp)

    def _make(self, tp: TopicPartition, epoch: int, *, notes: bool = True) -> _Batch:
        random, name = self._client.random, self._client.name
        values = [f"{name}.{self._count + i}".encode() for i in range(random.randint(1, 3))]
        self._count += len(values)
        sequence = self._sequences.get(tp, 0)
        lines = self._workload.sending(
            self._client, tp, values, acks=-1, idempotent=True, in_flight=IN_FLIGHT
        )
        self._sequences[tp] = sequence + len(values)
        return _Batch(values, make_batch(values, (self._id, epoch), sequence), lines)

    async def _burst(self, tp: TopicPartition, count: int) -> bool:
        batches = [self._make(tp, self._epoch) for _ in range(count)]
        await self._all_at_once(tp, batches)
        for batch in batches:
            if not batch.acked and not await self._bring_home(tp, batch):
                for other in batches:
                    if not other.acked:
                        other.lines.info("GIVEN_UP", max(other.tries, 1))
                return False
        return True

    async def _all_at_once(self, tp: TopicPartition, batches: list[_Batch]) -> None:
        """The first attempt of each batch, without waiting in between."""
        try:
            answers = await self._client.begin_all(tp, [batch.data for batch in batches])
        except Failed as failed:
            self._workload.history.errors[failed.name] += 1
            self._client.forget(tp)
            return
        finally:
            for batch in batches:
                batch.tries += 1
        known = self._knows.get(tp)
        for batch, answer in zip(batches, answers, strict=True):
            try:
                base = await answer()
            except Failed as failed:
                self._workload.history.errors[failed.name] += 1
                self._client.forget(tp)
            else:
                self._acked(tp, batch, base)
        if not batches[0].acked:
            # a leader that knows nothing of a producer accepts any first sequence
            self._knows[tp] = known

    def _acked(self, tp: TopicPartition, batch: _Batch, base: int) -> None:
        batch.acked = True
        self._knows[tp] = self._leader_life(tp)
        self._workload.acknowledged(tp, base, batch.values, -1)
        batch.lines.ok(base, batch.tries)

    async def _bring_home(self, tp: TopicPartition, batch: _Batch) -> bool:
        """Retries a batch whose predecessors are all acknowledged."""
        give_up = trio.current_time() + GIVE_UP_S
        while trio.current_time() < give_up:
            batch.tries += 1
            try:
                base = await self._client.produce(tp, batch.data, -1)
            except Failed as failed:
                self._workload.history.errors[failed.name] += 1
                asked = self._client.known_leader(tp)
                self._client.forget(tp)
                if failed.name in FATAL:
                    self._refused(tp, batch, failed.name, asked)
                    return False
                await self._client.pause()
                continue
            self._acked(tp, batch, base)
            return True
        return False

    def _refused(self, tp: TopicPartition, batch: _Batch, error: str, asked: int) -> None:
        self._workload.history.count["sequences given up"] += 1
        leader, *life = self._leader_life(tp)
        if error != "OUT_OF_ORDER_SEQUENCE_NUMBER" or asked != leader:
            return  # a replaced leader knows no better
        if self._knows.get(tp) != (leader, *life):
            return  # nor does one without the previous batch, where that may be lost
        self._workload.rules.broken(
            "C2",
            f"{tp}: a retry of {batch.values[0]!r}, one of the last {IN_FLIGHT} batches of its "
            f"producer, was not recognised: {error}, although its leader is the same",
        )

    async def _new_epoch(self, tp: TopicPartition) -> None:
        old, sequence = self._epoch, self._sequences.get(tp, 0)
        self._epoch += 1
        self._sequences.clear()
        if not await self._burst(tp, 1):
            self._id = -1
            return
        kept = dict(self._sequences)
        self._sequences[tp] = sequence
        zombie = self._make(tp, old)
        self._sequences = kept
        for value in zombie.values:
            self._workload.history.sent[value].fenced = True
        error = "NONE"
        try:
            await self._client.produce(tp, zombie.data, -1)
        except Failed as failed:
            error = failed.name
            self._client.forget(tp)
        zombie.lines.info(error, 1)
        self._workload.history.count["zombie producers"] += 1
        if error == "NONE":
            self._workload.rules.broken(
                "C10",
                f"{tp}: {zombie.values[0]!r} of producer epoch {old} was taken after epoch "
                f"{self._epoch}",
            )
