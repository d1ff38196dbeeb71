"""Producers and consumers of a simulated run, and their history, judged at the end.

Each producer owns its values (`producer.sequence`) and sends batches of a few.

* `produce`: one batch at a time, tried again until its outcome is known.  With a producer id the
  brokers must recognise what they already have; now and then a batch is too large for a segment, is
  refused, and is sent again in a smaller form with the same sequence.  Without an id ("plain") a
  repeated value is counted and allowed.  acks=1 and acks=0 go to a topic of their own, where loss
  is expected.
* `pipelined` (in `pipelined.py`): an idempotent producer with up to five batches in flight.

The rules hear of every acknowledged and every consumed record at once (R4, R6).  The checks that
need the whole history (C1-C4, C7, C12, C15) run in `judge` after the final read, and again as SQL.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation.rules.allowed_losses import lost_since
from highwater.simulation.sim_history import History, SendLines, Sent
from highwater.simulation.workloads.plain_client import STAMP_MS, Failed, SimClient
from highwater.verdict.history import PROVES_NOTHING_APPENDED

if TYPE_CHECKING:
    from highwater.simulation.rules.cluster_rules import Rules

GIVE_UP_S = 20.0
LARGE = b"." * 2500
LARGE_ONE_IN = 40
_LATEST, _EARLIEST = -1, -2


class Outcome(Enum):
    """The outcome of one batch."""

    DONE = "its sequence is used, or nobody asks for one"
    REFUSED = "it certainly failed, and the sequence is the next batch's"
    GIVEN_UP = "unknown"


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
        self,
        client: SimClient,
        tps: list[TopicPartition],
        *,
        idempotent: bool = False,
        acks: int = -1,
        rate: float,
    ) -> None:
        """Sends until cancelled."""
        random, name = client.random, client.name.encode()
        sequences: dict[TopicPartition, int] = {}
        producer: tuple[int, int] | None = None
        count = 0
        while True:
            await client.sleep(random.expovariate(rate))
            if idempotent and producer is None:
                producer = await self.producer_id(client)
                sequences.clear()
            tp = random.choice(tps)
            n, sequence = random.randint(1, 4), sequences.get(tp, 0)
            large = idempotent and random.randrange(LARGE_ONE_IN) == 0
            for padding in (LARGE, b"") if large else (b"",):
                values = [b"%s.%d%s" % (name, count + i, padding) for i in range(n)]
                count += n
                batch = make_batch(values, producer, sequence)
                outcome = await self._send(client, tp, values, batch, idempotent, acks)
                if outcome is not Outcome.REFUSED:
                    break
            if outcome is Outcome.DONE:
                sequences[tp] = sequence + n
            elif outcome is Outcome.GIVEN_UP:
                producer = None  # its sequence is lost; start again with another id

    async def producer_id(self, client: SimClient) -> tuple[int, int]:
        while True:
            try:
                return await client.init_producer_id()
            except Failed as failed:
                self.history.errors[failed.name] += 1
                await client.pause()

    def sending(
        self,
        client: SimClient,
        tp: TopicPartition,
        values: list[bytes],
        *,
        acks: int,
        idempotent: bool,
        in_flight: int = 1,
    ) -> SendLines:
        """Notes a batch before its first attempt."""
        history = self.history
        for value in values:
            history.sent[value] = Sent(tp, acks, idempotent)
        history.count["sends"] += 1
        return SendLines(
            history,
            client.name,
            tp,
            values,
            acks=acks,
            idempotent=idempotent,
            expect_loss=tp.topic in self.expect_loss,
            in_flight=in_flight,
        )

    async def _send(
        self,
        client: SimClient,
        tp: TopicPartition,
        values: list[bytes],
        batch: bytes,
        idempotent: bool,
        acks: int,
    ) -> Outcome:
        """Sends until acknowledged, certain to have failed, or given up."""
        history = self.history
        lines = self.sending(client, tp, values, acks=acks, idempotent=idempotent)
        attempts, give_up, error = 0, trio.current_time() + GIVE_UP_S, "GIVEN_UP"
        while trio.current_time() < give_up:
            attempts += 1
            try:
                base = await client.produce(tp, batch, acks)
            except Failed as failed:
                error = failed.name
                history.errors[error] += 1
                client.forget(tp)
                if error in FATAL:
                    break
                if acks in (0, 1) and attempts > 3:
                    lines.info(error, attempts)
                    return Outcome.DONE
                too_large = error in TOO_LARGE  # for any leader, so no attempt has succeeded
                if too_large or (attempts == 1 and not idempotent and _certain(error, acks)):
                    for value in values:
                        history.sent[value].failed = True
                    lines.fail(error)
                    history.count["too large"] += too_large
                    return Outcome.REFUSED if too_large else Outcome.DONE
                await client.pause()
                continue
            if acks == 0:
                lines.info("NO_ANSWER", attempts)
            else:
                self.acknowledged(tp, base, values, acks)
                lines.ok(base, attempts)
            return Outcome.DONE
        lines.info(error, attempts)
        return Outcome.GIVEN_UP

    def acknowledged(self, tp: TopicPartition, base: int, values: list[bytes], acks: int) -> None:
        history = self.history
        history.count["acked"] += len(values)
        if base < 0:
            return  # a duplicate that the broker knows without its offset (older than its cache)
        for offset, value in enumerate(values, base):
            history.sent[value].offset = offset
            if acks == -1:
                self.rules.acknowledged(tp, offset, value)
                history.sent[value].losses = self._knows(tp, offset, value)
                earlier = history.acked.setdefault((tp, offset), value)
                before = history.sent[earlier].losses
                if earlier != value and not self.given_up(tp, offset, before):
                    self.rules.broken(
                        "C12", f"{tp}@{offset} was acknowledged to {earlier!r} and {value!r}"
                    )
                history.acked[tp, offset] = value

    def given_up(self, tp: TopicPartition, offset: int, losses: int = 0) -> bool:
        """Whether this record was lost where loss is expected (see `PartitionTruth.given_up`), and
        not by the first `losses` losses, which it came after."""
        return lost_since(self.rules, tp, offset, losses)

    def _knows(self, tp: TopicPartition, offset: int, value: bytes) -> int:
        """A client knows of this record; gives the losses that cannot have taken it."""
        history, losses = self.history, self.rules.losses_behind(tp, offset, value)
        end = history.known_end.get(tp, 0) - 1
        anew = self.given_up(tp, end, history.known_losses.get(tp, 0))
        history.knows(tp, offset, losses, anew=anew)
        return losses

    # -- consuming ------------------------------------------------------------------------------

    async def consume(
        self, client: SimClient, tps: list[TopicPartition], pace: float = 1.0
    ) -> None:
        """Reads from the start on, until cancelled."""
        positions = dict.fromkeys(tps, 0)
        for tp in tps:
            self.history.line(client.name, "assign", "ok", tp, offset=0, phase="run")
        while True:
            for tp in tps:
                fenced = self._fenced(client, tp)
                try:
                    polled = await client.fetch(tp, positions[tp], 100)
                except Failed as failed:
                    self.history.errors[failed.name] += 1
                    client.forget(tp)
                    if failed.name == "OFFSET_OUT_OF_RANGE" and self.given_up(tp, positions[tp]):
                        positions[tp] = 0
                        self.history.line(client.name, "assign", "ok", tp, offset=0, phase="run")
                    await client.pause()
                    continue
                self.history.count["polls"] += 1
                if fenced is not None:
                    self.rules.broken("R10", f"{tp}: {client.name} was given records, {fenced}")
                self._polled(client.name, tp, polled.records, final=False)
                positions[tp] = max(positions[tp], polled.next_offset)
            await client.pause(0.02 / pace, 0.1 / pace)

    def _fenced(self, client: SimClient, tp: TopicPartition) -> str | None:
        """The reason why a request that names the client's leader epoch must be refused (KIP-320):
        its broker is in a later one."""
        leader, epoch = client.known_term(tp)
        truth = self.rules.partitions.get(tp)
        replica = truth.replicas.get(leader) if truth is not None else None
        view = replica.view if replica is not None else None
        if view is None or not 0 <= epoch < view.leader_epoch:
            return None
        return (
            f"asking broker {leader} in leader epoch {epoch}, when that was in {view.leader_epoch}"
        )

    def _polled(
        self,
        process: str,
        tp: TopicPartition,
        records: list[tuple[int, int, bytes]],
        *,
        final: bool,
    ) -> None:
        history = self.history
        history.count["polled"] += len(records)
        op = history.operation() if records else 0
        phase = "final" if final else "run"
        for offset, epoch, value in records:
            self._read(tp, offset, value, history.final if final else history.read)
            history.line(
                process, "poll", "ok", tp, op=op, poll_id=op, n=len(records), offset=offset,
                leader_epoch=epoch, value=value.decode(errors="replace"), phase=phase,
            )  # fmt: skip

    def _read(
        self,
        tp: TopicPartition,
        offset: int,
        value: bytes,
        where: dict[tuple[TopicPartition, int], bytes],
    ) -> None:
        self.rules.consumed(tp, offset, value)
        losses = self._knows(tp, offset, value)
        where[tp, offset] = value
        earlier = self.history.read.setdefault((tp, offset), value)
        before = self.history.read_losses.setdefault((tp, offset), losses)
        if earlier != value and not self.given_up(tp, offset, before):
            self.rules.broken("C1", f"{tp}@{offset} was {earlier!r}, and is {value!r}")
        if value not in self.history.sent:
            self.rules.broken("C7", f"{tp}@{offset} holds {value!r}, which nobody sent")

    async def list_offset(self, client: SimClient, tp: TopicPartition, which: int) -> int:
        """Asks ListOffsets and writes its history lines; raises Failed."""
        name = "latest" if which == _LATEST else "earliest"
        op = self.history.operation()
        common = {"op": op, "which": name, "phase": "run"}
        self.history.line(client.name, "list_offsets", "invoke", tp, **common)
        truth = self.rules.partitions.get(tp)
        agreed = truth.state.leader_epoch if truth and truth.state else -1
        known, losses = self.history.known_end.get(tp, 0), self.history.known_losses.get(tp, 0)
        fenced = self._fenced(client, tp)
        try:
            offset, epoch = await client.list_offset_and_epoch(tp, which)
        except Failed as failed:
            self.history.line(client.name, "list_offsets", "info", tp, error=failed.name, **common)
            raise
        self.history.line(
            client.name, "list_offsets", "ok", tp, offset=offset, leader_epoch=epoch, **common
        )
        if fenced is not None:
            self.rules.broken("R10", f"{tp}: {client.name} was told an offset, {fenced}")
        # a leader replaced before the call may still answer for its own epoch
        stale = which == _LATEST and epoch >= agreed and offset < known
        if stale and not self.given_up(tp, known - 1, losses):
            self.rules.broken(
                "C13",
                f"{tp} ends at {offset}, said the leader of epoch {epoch}; before it was asked, "
                f"{known} was known, and ZooKeeper's leader epoch was {agreed}",
            )
        return offset

    async def read_all(self, client: SimClient, tps: list[TopicPartition]) -> None:
        """The final full read, after healing."""
        for tp in tps:
            offset, end = 0, None
            self.history.line(client.name, "assign", "ok", tp, offset=0, phase="final")
            while end is None or offset < end:
                try:
                    if end is None:
                        offset = await self.list_offset(client, tp, _EARLIEST)
                        self.history.starts[tp] = offset
                        end = await self.list_offset(client, tp, _LATEST)
                        continue
                    polled = await client.fetch(tp, offset)
                except Failed as failed:
                    self.history.errors[failed.name] += 1
                    client.forget(tp)
                    await client.pause()
                    continue
                self._polled(client.name, tp, polled.records, final=True)
                offset = max(offset, polled.next_offset)

    # -- the verdict ----------------------------------------------------------------------------

    def judge(self) -> None:
        """The checks of the whole history, after the final read."""
        history, rules = self.history, self.rules
        where: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        for place, value in history.final.items():
            where.setdefault(value, []).append(place)
        for value, sent in history.sent.items():
            if sent.tp.topic not in self.deleted:
                self._judge(value, sent, where.get(value, []))
        for (tp, offset), value in history.read.items():
            losses = history.read_losses[tp, offset]
            if tp.topic in self.deleted or self.given_up(tp, offset, losses):
                continue
            if offset >= history.starts.get(tp, 0) and (tp, offset) not in history.final:
                rules.broken("C15", f"{tp}@{offset} {value!r} was read, and is gone")

    def _judge(self, value: bytes, sent: Sent, places: list[tuple[TopicPartition, int]]) -> None:
        history, rules = self.history, self.rules
        excused = sent.offset is not None and self.given_up(sent.tp, sent.offset, sent.losses)
        loss_expected = sent.tp.topic in self.expect_loss or excused
        if sent.offset is not None and not places:
            if loss_expected:
                rules.expected_losses += 1
                history.count["lost as expected"] += 1
            else:
                rules.broken(
                    "C4",
                    f"{value!r} was acknowledged at {sent.tp}@{sent.offset}, and is not there",
                )
        if sent.failed and places:
            rules.broken("C7", f"{value!r} certainly failed, and is at {places}")
        if sent.fenced and places:
            rules.broken(
                "C10",
                f"{value!r} of an older producer epoch stands at {places}, after the newer one",
            )
        if len(places) > 1:
            if sent.idempotent:
                rules.broken("C2", f"{value!r} is there {len(places)} times: {places}")
            history.count["duplicates"] += len(places) - 1
        moved = sent.offset is not None and places and (sent.tp, sent.offset) not in places
        if moved and sent.idempotent and not loss_expected:
            rules.broken("C7", f"{value!r} was acknowledged at {sent.offset}, and is at {places}")


TOO_LARGE = {"RECORD_LIST_TOO_LARGE", "MESSAGE_TOO_LARGE"}
FATAL = {"OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID"}


def make_batch(values: list[bytes], producer: tuple[int, int] | None, sequence: int) -> bytes:
    records = [Record(None, value, STAMP_MS) for value in values]
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


def _certain(error: str, acks: int) -> bool:
    """Whether a first attempt certainly appended nothing.  A demoted leader's
    NOT_LEADER_OR_FOLLOWER may come after the append."""
    return error in PROVES_NOTHING_APPENDED and not (
        acks == -1 and error == "NOT_LEADER_OR_FOLLOWER"
    )
