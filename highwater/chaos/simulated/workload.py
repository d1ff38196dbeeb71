"""Producers and consumers of a simulated run, and their history, judged at the end.

Each producer owns its values (`producer.sequence`), sends batches of a few, and tries an acks=all
batch again until its outcome is known: with a producer id, so that the brokers must recognise what
they already have; without one ("plain"), a repeated value is counted and allowed.  acks=1 goes to a
topic of its own, where loss is expected.

The rules hear of every acknowledged and every consumed record at once (R4, R6); what only the whole
history can show (C1-C4, C7, C12, C15) is judged by `judge` after the final read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from highwater.chaos.history import PROVES_NOTHING_APPENDED
from highwater.chaos.simulated.client import Failed, SimClient
from highwater.common.types import TopicPartition
from highwater.common.wire.record_codec import Record
from highwater.common.wire.records import build_batch

if TYPE_CHECKING:
    from highwater.chaos.simulated.rules import Rules

_GIVE_UP_S = 20.0


@dataclass(slots=True)
class Sent:
    """What became of one value."""

    tp: TopicPartition
    acks: int
    idempotent: bool
    offset: int | None = None
    failed: bool = False
    """It is certain that it was not appended."""


@dataclass
class History:
    """Everything the clients know."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    acked: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    read: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    final: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


class Workload:
    """The clients of one run.  `expect_loss` names the topics written with acks=1."""

    def __init__(
        self, rules: Rules, history: History, *, expect_loss: frozenset[str] = frozenset()
    ) -> None:
        self.rules = rules
        self.history = history
        self.expect_loss = expect_loss
        self.deleted: set[str] = set()

    # -- producing ------------------------------------------------------------------------------

    async def produce(
        self, client: SimClient, tps: list[TopicPartition], *, idempotent: bool, rate: float
    ) -> None:
        """Sends until cancelled."""
        random = client._world.random
        sequences: dict[TopicPartition, int] = {}
        producer: tuple[int, int] | None = None
        count = 0
        while True:
            await client.sleep(random.expovariate(rate))
            if idempotent and producer is None:
                producer = await self._producer_id(client)
                sequences.clear()
            tp = random.choice(tps)
            values = [f"{client.name}.{count + i}".encode() for i in range(random.randint(1, 4))]
            count += len(values)
            sequence = sequences.get(tp, 0)
            batch = self._batch(values, producer, sequence)
            known = await self._send(client, tp, values, batch, idempotent)
            if known:
                sequences[tp] = sequence + len(values)
            else:
                producer = None  # its sequence is lost; start anew with another id

    async def _producer_id(self, client: SimClient) -> tuple[int, int]:
        while True:
            try:
                return await client.init_producer_id()
            except Failed as failed:
                self.history.errors[failed.name] += 1
                await client.pause()

    def _batch(self, values: list[bytes], producer: tuple[int, int] | None, sequence: int) -> bytes:
        records = [Record(None, value, 1_700_000_000_000) for value in values]
        if producer is None:
            return bytes(build_batch(records))
        return bytes(
            build_batch(
                records,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
            )
        )

    async def _send(
        self,
        client: SimClient,
        tp: TopicPartition,
        values: list[bytes],
        batch: bytes,
        idempotent: bool,
    ) -> bool:
        """Until acknowledged, or certain to have failed; False where it was given up."""
        history = self.history
        acks = 1 if tp.topic in self.expect_loss else -1
        for value in values:
            history.sent[value] = Sent(tp, acks, idempotent)
        history.count["sends"] += 1
        attempts, give_up = 0, trio.current_time() + _GIVE_UP_S
        while trio.current_time() < give_up:
            attempts += 1
            try:
                base = await client.produce(tp, batch, acks)
            except Failed as failed:
                history.errors[failed.name] += 1
                client.forget(tp)
                if failed.name in _FATAL:
                    return False
                if acks == 1 and attempts > 3:
                    return True
                if attempts == 1 and not idempotent and _certain(failed.name, acks):
                    for value in values:
                        history.sent[value].failed = True
                    return True
                await client.pause()
                continue
            self._acknowledged(tp, base, values, acks)
            return True
        return False

    def _acknowledged(self, tp: TopicPartition, base: int, values: list[bytes], acks: int) -> None:
        history = self.history
        history.count["acked"] += len(values)
        if base < 0:
            return  # a duplicate that the broker knows, but not where (older than its cache)
        for offset, value in enumerate(values, base):
            history.sent[value].offset = offset
            if acks == -1:
                self.rules.acknowledged(tp, offset, value)
                earlier = history.acked.setdefault((tp, offset), value)
                if earlier != value:
                    self.rules.broken(
                        "C12", f"{tp}@{offset} was acknowledged to {earlier!r} and {value!r}"
                    )

    # -- consuming ------------------------------------------------------------------------------

    async def consume(self, client: SimClient, tps: list[TopicPartition]) -> None:
        """Reads from the start, again and again from where it is, until cancelled."""
        positions = dict.fromkeys(tps, 0)
        while True:
            for tp in tps:
                try:
                    polled = await client.fetch(tp, positions[tp], 100)
                except Failed as failed:
                    self.history.errors[failed.name] += 1
                    client.forget(tp)
                    await client.pause()
                    continue
                self.history.count["polls"] += 1
                self.history.count["polled"] += len(polled.records)
                for offset, _, value in polled.records:
                    self._read(tp, offset, value, self.history.read)
                positions[tp] = max(positions[tp], polled.next_offset)
            await client.pause(0.02, 0.1)

    def _read(
        self,
        tp: TopicPartition,
        offset: int,
        value: bytes,
        where: dict[tuple[TopicPartition, int], bytes],
    ) -> None:
        self.rules.consumed(tp, offset, value)
        where[tp, offset] = value
        earlier = self.history.read.setdefault((tp, offset), value)
        if earlier != value and tp.topic not in self.expect_loss:
            self.rules.broken("C1", f"{tp}@{offset} was {earlier!r}, and is {value!r}")
        if value not in self.history.sent:
            self.rules.broken("C7", f"{tp}@{offset} holds {value!r}, which nobody sent")

    async def read_all(self, client: SimClient, tps: list[TopicPartition]) -> None:
        """The final full read, after healing."""
        for tp in tps:
            offset, end = 0, None
            while end is None or offset < end:
                try:
                    if end is None:
                        offset = self.history.starts[tp] = await client.list_offset(tp, -2)
                        end = await client.list_offset(tp, -1)
                        continue
                    polled = await client.fetch(tp, offset)
                except Failed as failed:
                    self.history.errors[failed.name] += 1
                    client.forget(tp)
                    await client.pause()
                    continue
                for at, _, value in polled.records:
                    self._read(tp, at, value, self.history.final)
                offset = max(offset, polled.next_offset)

    # -- the verdict ----------------------------------------------------------------------------

    def judge(self) -> None:
        """The checks of the whole history, after the final read."""
        history, rules = self.history, self.rules
        where: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        for place, value in history.final.items():
            where.setdefault(value, []).append(place)
        for value, sent in history.sent.items():
            places = where.get(value, [])
            loss_expected = sent.tp.topic in self.expect_loss
            if sent.tp.topic in self.deleted:
                continue
            if sent.offset is not None and not places:
                if loss_expected:
                    rules.expected_losses += 1
                else:
                    rules.broken("C4", f"{value!r} was acknowledged at {sent.tp}@{sent.offset}, "
                                 "and is not there")  # fmt: skip
            if sent.failed and places:
                rules.broken("C7", f"{value!r} certainly failed, and is at {places}")
            if len(places) > 1:
                if sent.idempotent:
                    rules.broken("C2", f"{value!r} is there {len(places)} times: {places}")
                history.count["duplicates"] += len(places) - 1
            moved = sent.offset is not None and places and (sent.tp, sent.offset) not in places
            if moved and sent.idempotent and not loss_expected:
                rules.broken(
                    "C7", f"{value!r} was acknowledged at {sent.offset}, and is at {places}"
                )
        for (tp, offset), value in history.read.items():
            if tp.topic in self.expect_loss or tp.topic in self.deleted:
                continue
            if offset >= history.starts.get(tp, 0) and (tp, offset) not in history.final:
                rules.broken("C15", f"{tp}@{offset} {value!r} was read, and is gone")


_FATAL = {"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID"}


def _certain(error: str, acks: int) -> bool:
    """Of a first attempt: nothing was appended.  A demoted leader's NOT_LEADER_OR_FOLLOWER may come
    after the append."""
    return error in PROVES_NOTHING_APPENDED and not (
        acks == -1 and error == "NOT_LEADER_OR_FOLLOWER"
    )
