"""A topic whose beginning is deleted, written and read by requests of several partitions.

* The producer puts batches for several partitions into one Produce: some may be acknowledged, and
  others of the same request refused.
* The reader has an incremental fetch session (KIP-227) with every broker, and asks each of them for
  all partitions, but for one or two that it drops now and then, and takes up again.  So most
  partitions of a session are in error most of the time, and recover without being named again when
  that broker begins to lead them.  In half of the seeds it drops none and names no leader epochs:
  it believes what a session was told once.  Of the others half name leader epochs (KIP-320), and
  never an older one than they know; in the rest a replaced leader that does not know it may answer
  that the reader is out of range.  In half of the seeds brokers remember two or three sessions
  (max.incremental.fetch.session.cache.slots), and followers' sessions evict the reader's.
* DeleteRecords removes the beginning of a partition now and then, often every acknowledged record:
  a follower that is down or cut off may find that its leader's log begins above its own end.

R4 and R6 hear of each acknowledged and each read record at once.  The other checks:

* C1, C12: an offset is read, and acknowledged, with one value.
* C2, C4, C7: each acknowledged record that no client asked to delete is there in the end, once,
  where it was acknowledged, and nothing else is.
* C7, C8, C9: a fetch is answered for partitions that it asks for, and from the position on.
* C15: a position that was read is out of range only where it was deleted, or lost.
* R5: no replica's log begins above the offset that DeleteRecords asked for, by its disk or by its
  answers; and none below one whose deletion was acknowledged, where no replica's broker started
  since.
* L1: once all is healed, the reader's sessions reach every partition's end.

Careless power losses are excused by `allowed_losses.lost_since`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from highwater.kafka.client.produce_codec import parse_produce_response, produce_request
from highwater.kafka.client.producer import PRODUCE, PRODUCE_VERSION
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import (
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    build_fetch,
    parse_fetch_answer,
)
from highwater.kafka.wire.fetch_session_handler import SESSION_ERRORS, FetchSessionHandler
from highwater.kafka.wire.records import batches, records_of
from highwater.simulation.requested import beginning
from highwater.simulation.rules.allowed_losses import losses_of, lost_since
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.plain_client import (
    FETCH,
    FETCH_VERSION,
    TIMEOUT_S,
    Failed,
    SimClient,
)
from highwater.simulation.workloads.workload import make_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from highwater.simulation.rules.answers import Answers, Question
    from highwater.world.sim import Kernel, SimWorld

TRIMMED = "trimmed"
PARTITIONS = 4
TPS = [TopicPartition(TRIMMED, n) for n in range(PARTITIONS)]
_DROP, _TAKE_UP, _DROPPED = 0.25, 0.4, 2
"""Chances, at each fetch, to drop a partition and to take one up; how many may be dropped."""
_LATEST, _EARLIEST = -1, -2
CAUGHT_UP_S = 120.0


class Acked(NamedTuple):
    """An acknowledged record.  `losses`: the log's known losses when it was sent."""

    value: bytes
    losses: int


class ManyClient(SimClient):
    """A client whose requests name several partitions."""

    def __init__(
        self,
        world: SimWorld,
        name: str,
        bootstrap: Sequence[tuple[str, int]],
        answers: Answers | None = None,
    ) -> None:
        super().__init__(world, name, bootstrap, answers)
        self.fenced = self.random.random() < 0.5
        """Whether this client's fetches name leader epochs."""
        self._newest = dict.fromkeys(TPS, -1)
        self._told: dict[tuple[str, int], dict[TopicPartition, FetchedPartition]] = {}
        """Broker -> the last answer without an error of its session, for each partition."""

    async def leaders(self) -> dict[tuple[str, int], list[TopicPartition]]:
        """The partitions by leader, as in the last metadata."""
        found: dict[tuple[str, int], list[TopicPartition]] = {}
        for tp in TPS:
            try:
                address, _ = await self._leader(tp)
            except Failed as failed:
                if failed.name != "LEADER_NOT_AVAILABLE":
                    raise
                continue
            found.setdefault(address, []).append(tp)
        return found

    def brokers(self) -> list[tuple[int, tuple[str, int]]]:
        return sorted(self._brokers.items())

    async def produce_many(
        self, address: tuple[str, int], sent: list[tuple[TopicPartition, bytes]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Error and base offset of each partition (acks=all)."""
        body = produce_request(-1, TIMEOUT_S / 2, [(tp, bytearray(b)) for tp, b in sent])
        began = self.now()
        answer = await self._call_raw(address, PRODUCE, PRODUCE_VERSION, body)
        assert answer is not None
        results = parse_produce_response(answer)
        if self._answers is not None and not any(error for error, *_ in results.values()):
            stored = {tp: offset for tp, (_, offset, _) in results.items()}
            self._answers.book.lateness.answered("a Produce", self.name, stored, began)
        return {tp: (error, offset) for tp, (error, offset, _) in results.items()}

    async def fetch_in(
        self,
        address: tuple[str, int],
        session: FetchSessionHandler,
        positions: dict[TopicPartition, int],
    ) -> FetchAnswer:
        """The next Fetch of the session, for these partitions; it begins again after a failure."""
        for tp in TPS:
            self._newest[tp] = max(self._newest[tp], self.known_term(tp)[1])
        asked = {
            tp: FetchPartition(tp, self._newest[tp] if self.fenced else -1, offset, -1, -1, 1 << 14)
            for tp, offset in positions.items()
        }
        told = {} if session.is_new else self._told[address]
        self._told[address] = {tp: known for tp, known in told.items() if tp in positions}
        question = self._question(address, *positions)
        request = session.request(
            asked, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20
        )
        try:
            body = await self._call_raw(
                address, FETCH, FETCH_VERSION, [build_fetch(request, FETCH_VERSION)]
            )
        except Failed:
            session.reset()
            raise
        assert body is not None
        answer = parse_fetch_answer(body, FETCH_VERSION)
        session.answered(answer)
        if not answer.error:
            self._compare(question, self._told[address], answer)
        return answer

    def _compare(
        self,
        question: Question,
        told: dict[TopicPartition, FetchedPartition],
        answer: FetchAnswer,
    ) -> None:
        """Gives the rules what this answer says, and, for partitions that it leaves out because
        they have no news, what the session said last."""
        for got in answer.partitions:
            told.pop(got.tp, None)
            if not got.error:
                question.fetched(got)
        for known in told.values():
            question.left_out(known)
        told.update({got.tp: got for got in answer.partitions if not got.error})


@dataclass
class TrimmedTopic(Part):
    """The topic from its clients' side."""

    flag = "trimmed"
    help = "A topic whose beginning goes, and requests of several partitions."
    topics = (Topic(TRIMMED, PARTITIONS),)
    client_kind, last = ManyClient, "many-reader"

    sent: dict[bytes, TopicPartition] = field(default_factory=dict)
    acked: dict[TopicPartition, dict[int, Acked]] = field(
        default_factory=lambda: {tp: {} for tp in TPS}
    )
    """Offset -> the record last acknowledged there."""
    read: dict[TopicPartition, dict[int, Acked]] = field(
        default_factory=lambda: {tp: {} for tp in TPS}
    )
    deleted: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(TPS, 0))
    """Records below this offset may be gone: somebody, perhaps another client, requested that."""
    gone: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """Partition -> (offset, when (s, virtual) the deletion of all records below was acknowledged).
    A broker that crashes may have them again, as in Kafka, where log starts are checkpointed only
    now and then."""
    positions: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(TPS, 0))
    """The reader's positions."""
    sessions_for_all: bool = True
    """Whether brokers remember more sessions than there are readers and followers."""
    trusts: bool = False
    """Whether the reader names a partition again only if its position has changed."""

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        return {"session_slots": kernel.random("session slots").choice((1000, 1000, 2, 3))}

    @classmethod
    def of(cls, shared: Shared) -> Self:
        ample = shared.cluster.shape.session_slots > 1 + shared.cluster.shape.brokers
        deleted = shared.cluster.requested.deletions
        trusts = shared.cluster.kernel.random("trust in sessions").random() < 0.5
        return cls(*shared.told, deleted=deleted, sessions_for_all=ample, trusts=trusts)

    def clients(self) -> Works:
        return {"many": self.produce, "deleter": self.delete, "sessions": self.consume}

    # -- producing ------------------------------------------------------------------------------

    async def produce(self, client: ManyClient, rate: float = 4.0) -> None:
        """Sends until cancelled, each batch once; a failed one may still have been appended."""
        random = client.random
        while True:
            await trio.sleep(random.expovariate(rate * self.pace))
            try:
                led = await client.leaders()
            except Failed as failed:
                await self._again(client, failed)
                continue
            for address, tps in led.items():
                chosen = [tp for tp in tps if random.random() < 0.8]
                if chosen:
                    await self._produce(client, address, chosen)

    async def _produce(
        self, client: ManyClient, address: tuple[str, int], tps: list[TopicPartition]
    ) -> None:
        values: dict[TopicPartition, list[bytes]] = {}
        for tp in tps:
            for _ in range(client.random.randint(1, 3)):
                value = b"%d.%d" % (tp.partition, len(self.sent))
                self.sent[value] = tp
                values.setdefault(tp, []).append(value)
        made = [(tp, make_batch(values[tp], None, 0)) for tp in tps]
        losses = {tp: losses_of(self.rules, tp) for tp in tps}
        self.count["many: requests"] += 1
        try:
            results = await client.produce_many(address, made)
        except Failed as failed:
            await self._again(client, failed)
            return
        refused = [tp for tp in tps if results[tp][0]]
        self.count["many: partitions"] += len(tps)
        self.count["many: refused in part"] += 0 < len(refused) < len(tps)
        for tp in tps:
            error, base = results[tp]
            if error:
                self.errors[ErrorCode(error).name] += 1
                client.forget(tp)
            else:
                self.acknowledged(tp, base, values[tp], losses[tp])

    def acknowledged(
        self, tp: TopicPartition, base: int, values: list[bytes], losses: int = 0
    ) -> None:
        """Notes an acknowledged batch.  `losses`: the log's known losses when it was sent."""
        for offset, value in enumerate(values, base):
            self.rules.acknowledged(tp, offset, value)
            self._note(self.acked[tp], tp, offset, Acked(value, losses), "C12", "was acknowledged")

    def _note(
        self,
        where: dict[int, Acked],
        tp: TopicPartition,
        offset: int,
        now: Acked,
        rule: str,
        what: str,
    ) -> None:
        before = where.get(offset)
        if before is not None and before.value != now.value and not self._lost(tp, offset, before):
            self.rules.broken(rule, f"{tp}@{offset} {what} as {before.value!r} and {now.value!r}")
        where[offset] = now

    def _lost(self, tp: TopicPartition, offset: int, known: Acked) -> bool:
        return lost_since(self.rules, tp, offset, known.losses)

    async def _again(self, client: ManyClient, failed: Failed) -> None:
        self.errors[failed.name] += 1
        for tp in TPS:
            client.forget(tp)
        await client.pause()

    # -- deleting -------------------------------------------------------------------------------

    async def delete(self, client: ManyClient) -> None:
        """Deletes a partition's beginning now and then, until cancelled."""
        random = client.random
        while True:
            await trio.sleep(random.expovariate(0.5))
            tp = random.choice(TPS)
            end = max(self.acked[tp], default=-1) + 1
            if (offset := beginning(self.deleted, tp, end, random)) is None:
                continue
            self.rules.shortened.add(tp.topic)
            self.count["records: deletions"] += 1
            try:
                await client.delete_records(tp, offset)
            except Failed as failed:
                await self._again(client, failed)
            else:
                self.gone[tp] = max(self.gone.get(tp, (0, 0.0)), (offset, self.rules.now()))

    # -- reading --------------------------------------------------------------------------------

    async def consume(self, client: ManyClient) -> None:
        """Reads until cancelled."""
        client.fenced = client.fenced and not self.trusts
        sessions: dict[int, FetchSessionHandler] = {}
        dropped: dict[int, list[TopicPartition]] = {}
        while True:
            heard: set[TopicPartition] = set()
            for node, address in client.brokers():
                session = sessions.setdefault(node, FetchSessionHandler())
                losses = {tp: losses_of(self.rules, tp) for tp in TPS}
                asked = self._choose(client, dropped.setdefault(node, []), session)
                try:
                    answer = await client.fetch_in(address, session, asked)
                except Failed as failed:
                    self.errors[failed.name] += 1
                    continue
                if answer.error:
                    self._session_over(answer.error)
                    continue
                self.count["sessions: given"] += not session.is_new
                self.answered(answer, asked)
                heard |= await self._take(client, node, answer, losses)
            self.look_at_starts()
            if len(heard) < PARTITIONS:
                await self._look_for_leaders(client)
            await client.pause(0.1 / self.pace, 0.3 / self.pace)

    def _choose(
        self, client: ManyClient, dropped: list[TopicPartition], session: FetchSessionHandler
    ) -> dict[TopicPartition, int]:
        """The partitions to ask one broker for, with their positions; `dropped` are the others."""
        random = client.random
        if self.trusts:
            return dict(self.positions)
        if dropped and random.random() < _TAKE_UP:
            dropped.remove(random.choice(dropped))
            self.count["sessions: taken up again"] += 1
        if len(dropped) < _DROPPED and random.random() < _DROP:
            dropped.append(random.choice([tp for tp in TPS if tp not in dropped]))
        if not session.is_new:
            forgotten = sum(session.asked(tp) is not None for tp in dropped)
            self.count["sessions: forgotten"] += forgotten
        return {tp: at for tp, at in self.positions.items() if tp not in dropped}

    def answered(self, answer: FetchAnswer, asked: dict[TopicPartition, int]) -> None:
        """Compares an answer with the positions that were asked for."""
        for got in answer.partitions:
            if got.tp not in asked:
                self.rules.broken("C7", f"a fetch is answered for {got.tp}, not asked for")
                continue
            first = next(batches(bytes(got.records)), None) if got.size else None
            at = asked[got.tp]
            if first is not None and first.base_offset > at:
                self.rules.broken("C8", f"{got.tp}@{at} is answered from {first.base_offset} on")
            if first is not None and first.last_offset < at:
                self.rules.broken("C9", f"{got.tp}@{at} is answered from {first.base_offset} on")

    def look_at_starts(self) -> None:
        """Checks the log starts of all replicas, by their disks."""
        for tp in TPS:
            for broker, replica in self.rules.partitions[tp].replicas.items():
                self._begins(tp, broker, replica.mirror.start)

    def _begins(self, tp: TopicPartition, broker: int, start: int) -> None:
        if start > (asked := self.deleted[tp]):
            self.rules.broken(
                "R5", f"{tp}: the log of broker {broker} begins at {start}; {asked} was asked for"
            )

    def _session_over(self, error: int) -> None:
        if error not in SESSION_ERRORS:
            self.rules.broken("L1", f"a fetch of {TRIMMED} failed: {ErrorCode(error).name}")
        self.count["sessions: over"] += 1
        self.count["sessions: not found"] += error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    async def _look_for_leaders(self, client: ManyClient) -> None:
        try:
            await client.refresh([TRIMMED])
        except Failed as failed:
            self.errors[failed.name] += 1

    async def _take(
        self,
        client: ManyClient,
        node: int,
        answer: FetchAnswer,
        losses: dict[TopicPartition, int],
    ) -> set[TopicPartition]:
        """Takes an answer; gives the partitions without an error."""
        good: set[TopicPartition] = set()
        for got in answer.partitions:
            tp = got.tp
            if got.error == ErrorCode.OFFSET_OUT_OF_RANGE and not self._replaced(client, node, tp):
                await self.reset(client, tp)
            elif got.error:
                self.count["sessions: partitions in error"] += 1
            else:
                good.add(tp)
                self._begins(tp, node, got.log_start_offset)
                self._consumed(tp, bytes(got.records) if got.size else b"", losses[tp])
        return good

    def _consumed(self, tp: TopicPartition, data: bytes, losses: int) -> None:
        for record in records_of(data):
            if record.offset < self.positions[tp]:
                continue
            value = record.value or b""
            self.rules.consumed(tp, record.offset, value)
            known = Acked(value, losses)
            self._note(self.read[tp], tp, record.offset, known, "C1", "was read")
            if self.sent.get(value) != tp:
                self.rules.broken("C7", f"{tp}@{record.offset} holds {value!r}, not sent there")
            self.count["sessions: read"] += 1
        ends = [header.last_offset + 1 for header in batches(data)]
        self.positions[tp] = max([self.positions[tp], *ends])

    def _replaced(self, client: ManyClient, node: int, tp: TopicPartition) -> bool:
        """Whether the leader was replaced and could not notice it, as the request had no epoch."""
        state = self.rules.partitions[tp].state
        return not client.fenced and state is not None and state.leader != node

    async def reset(self, client: ManyClient, tp: TopicPartition) -> None:
        """Resets to the log's start; the log must have been trimmed, or have lost its tail."""
        position = self.positions[tp]
        truth = self.rules.partitions.get(tp)
        lost = truth is not None and any(a < position <= b for a, b in truth.given_up)
        if position >= self.deleted[tp] and not lost:
            self.rules.broken("C15", f"{tp}@{position} is out of range, and was not deleted")
        self.count["sessions: out of range"] += 1
        try:
            self.positions[tp] = await client.list_offset(tp, _EARLIEST)
        except Failed as failed:
            self.errors[failed.name] += 1
            client.forget(tp)

    async def settle(self) -> bool:
        """Waits until the reader reaches the present end of the committed records; False if it does
        not."""
        ends = {tp: self.rules.partitions[tp].end for tp in TPS}
        with trio.move_on_after(CAUGHT_UP_S):
            while any(self.positions[tp] < end for tp, end in ends.items()):
                await trio.sleep(0.1)
            return True
        self.rules.broken("L1", f"{CAUGHT_UP_S:g} s after all is well, sessions lack records")
        return False

    # -- the verdict ----------------------------------------------------------------------------

    def counted(self, shared: Shared) -> dict[str, int]:
        brokers = (node.services for node in shared.cluster.nodes.values())
        evicted = sum(one.replicas.sessions.evictions for one in brokers if one is not None)
        return {"sessions: evicted": evicted}

    async def judge(self, client: ManyClient) -> None:
        """Reads each partition and compares."""
        self.look_at_starts()
        if self.sessions_for_all and not self.count["sessions: given"]:
            self.rules.broken("L1", "no reader was ever given a fetch session")
        for tp in TPS:
            found = await self._read_all(client, tp)
            gone, at = self.gone.get(tp, (0, 0.0))
            crashed = any(self.rules.started[b] > at for b in self.rules.partitions[tp].assigned)
            if found and (first := min(found)) < gone and not crashed:
                what = f"{first} is there, and all below {gone} was deleted"
                self.rules.broken("R5", f"{tp}: {what}")
            self.count["records: deletions that must stay"] += gone > 0 and not crashed
            self.judge_partition(tp, found)

    async def _read_all(self, client: ManyClient, tp: TopicPartition) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset, end = 0, None
        while end is None or offset < end:
            try:
                if end is None:
                    offset = await client.list_offset(tp, _EARLIEST)
                    end = await client.list_offset(tp, _LATEST)
                    continue
                polled = await client.fetch(tp, offset)
            except Failed as failed:
                self.errors[failed.name] += 1
                client.forget(tp)
                await client.pause()
                continue
            found |= {at: value for at, _, value in polled.records}
            offset = max(offset, polled.next_offset)
        return found

    def judge_partition(self, tp: TopicPartition, found: dict[int, bytes]) -> None:
        """`found`: offset -> value, from the log's start to its end."""
        broken = self.rules.broken
        places: dict[bytes, list[int]] = {}
        for offset, value in found.items():
            places.setdefault(value, []).append(offset)
            if self.sent.get(value) != tp:
                broken("C7", f"{tp}@{offset} holds {value!r}, not sent there")
        for value, offsets in places.items():
            if len(offsets) > 1:
                broken("C2", f"{tp}: {value!r} is there {len(offsets)} times: {offsets}")
        for offset, known in self.acked[tp].items():
            if offset < self.deleted[tp] or self._lost(tp, offset, known):
                continue
            if found.get(offset) != known.value:
                broken("C4", f"{tp}: {known.value!r} was acknowledged at {offset}, where "
                       f"{found.get(offset, b'nothing')!r} is")  # fmt: skip
