"""Sends transaction markers to the leaders of a transaction's partitions, until each has its own.

There is one task for each broker that has ever led one of them.  It has one WriteTxnMarkers under
way, with everything that was queued since the last.  If the leader of a partition is not known,
refuses, or does not answer, the marker is sent again a moment later, to whichever broker leads
then.  A deleted partition needs no marker.  A partition that this broker's metadata lacks counts as
deleted once the metadata shows this broker's own election, because the controller sends elections
and deletions in order.

Source: kafka.coordinator.transaction.TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from highwater.broker.coordinator.transaction.records import (
    EPOCH_BUMPED,
    State,
    StoredTransaction,
)
from highwater.broker.membership.marker_fence import PURPOSE
from highwater.broker.membership.peer_link import Link
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage, decode_response
from highwater.kafka.wire.messages import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from highwater.broker.coordinator.transaction.shard import TransactionShard
    from highwater.broker.coordinator.transaction.transaction import Transaction
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.kafka.client.connection import Pending
    from highwater.kafka.config import Config
    from highwater.world.api import World

log = logging.getLogger(__name__)

VERSION = 0
"""The version in inter.broker.protocol.version 2.6."""
VERSION_WITH_EPOCHS = 2
"""The first that tells the transaction.version; for brokers that know it."""
AGAIN_S = 0.1
LOOK_S = 0.5
AT_ONCE = 1000
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_NOT_NEEDED = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)

Key = tuple[str, TopicPartition]
Marked = Callable[["TransactionShard", "Transaction", Sequence[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One marker to send: its decision, and the partition that it goes to."""

    shard: TransactionShard
    transaction: Transaction
    decision: StoredTransaction
    tp: TopicPartition

    @property
    def key(self) -> Key:
        return self.transaction.transactional_id, self.tp

    @property
    def is_current(self) -> bool:
        txn = self.transaction
        return self.shard.leads and txn.stored is self.decision and self.tp in txn.unmarked


class MarkerSender:
    """`marked` is called with the partitions of a transaction that need no marker any more."""

    def __init__(
        self, config: Config, world: World, metadata: MetadataCache, marked: Marked
    ) -> None:
        self._config = config
        self._world = world
        self._metadata = metadata
        self._marked = marked
        self._brokers: dict[int, _Broker] = {}
        self._later: dict[Key, Wanted] = {}
        self._news = trio.Event()
        self._nursery: trio.Nursery | None = None

    def send(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Sends markers to all partitions that still lack one."""
        decision = transaction.stored
        assert decision is not None
        for tp in list(transaction.unmarked):
            self._route(Wanted(shard, transaction, decision, tp))

    def forget(self, shard: TransactionShard) -> None:
        """Drops the shard's markers: this broker no longer coordinates it."""
        for waiting in (self._later, *(broker.waiting for broker in self._brokers.values())):
            for key in [key for key, wanted in waiting.items() if wanted.shard is shard]:
                del waiting[key]

    def _route(self, wanted: Wanted) -> None:
        if not wanted.is_current:
            return
        state = self._metadata.partition(wanted.tp)
        if state is None and self._sees_own_election(wanted.shard):
            log.info("%s was deleted: it needs no marker of %s", wanted.tp, wanted.key[0])
            self._marked(wanted.shard, wanted.transaction, [wanted.tp])
        elif state is None or state.leader < 0 or self._nursery is None:
            self.again(wanted)
        else:
            broker = self._brokers.get(state.leader)
            if broker is None:
                broker = self._brokers[state.leader] = _Broker(self, state.leader)
                self._nursery.start_soon(broker.run)
            broker.waiting[wanted.key] = wanted
            broker.news.set()

    def _sees_own_election(self, shard: TransactionShard) -> bool:
        known = self._metadata.partition(shard.partition.tp)
        return known is not None and known.leader_epoch >= shard.partition.leader_epoch

    def again(self, wanted: Wanted) -> None:
        """Sends the marker again a moment later."""
        self._later[wanted.key] = wanted
        self._news.set()

    def link(self, broker_id: int) -> Link:
        return Link(self._config, self._world, self._metadata, broker_id, PURPOSE)

    def leads_none(self, broker_id: int, markers: Iterable[Wanted]) -> bool:
        """Whether each of the partitions has another leader now, or its marker is outdated."""
        leader_of = self._metadata.leader_of
        return all(leader_of(m.tp) != broker_id or not m.is_current for m in markers)

    def answered(self, markers: dict[Key, Wanted], errors: dict[tuple[int, Any], int]) -> None:
        """Takes a leader's answer: `errors` by (producer id, partition)."""
        done: dict[str, tuple[Wanted, list[TopicPartition]]] = {}
        for wanted in markers.values():
            if not wanted.is_current:
                continue
            number = errors.get((wanted.decision.producer_id, wanted.tp))
            if number in _NOT_NEEDED:
                done.setdefault(wanted.key[0], (wanted, []))[1].append(wanted.tp)
            elif number in _FENCED:
                log.error("%s refused a marker of %s, epoch %d, from coordinator epoch %d: fenced",
                          wanted.tp, wanted.key[0], wanted.decision.epoch,
                          wanted.shard.coordinator_epoch)  # fmt: skip
            else:
                self.again(wanted)
        for wanted, tps in done.values():
            self._marked(wanted.shard, wanted.transaction, tps)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            while True:
                if not self._later:
                    self._news = trio.Event()
                    await self._news.wait()
                await trio.sleep(AGAIN_S)
                later, self._later = self._later, {}
                for wanted in later.values():
                    self._route(wanted)


class _Broker:
    """The markers for partitions that one broker leads."""

    def __init__(self, sender: MarkerSender, broker_id: int) -> None:
        self.sender = sender
        self.broker_id = broker_id
        self.waiting: dict[Key, Wanted] = {}
        self.news = trio.Event()
        self._link = sender.link(broker_id)

    async def run(self) -> None:
        while True:
            if not self.waiting:
                self.news = trio.Event()
                await self.news.wait()
            keys = list(self.waiting)[:AT_ONCE]
            taken = {key: self.waiting.pop(key) for key in keys}
            taken = {key: wanted for key, wanted in taken.items() if wanted.is_current}
            if not taken:
                continue
            try:
                answer = await self._ask(taken)
            except (OSError, BadMessage) as e:
                log.info("markers for broker %d: %s; again", self.broker_id, e)
                self._link.close()
                for wanted in taken.values():
                    self.sender.again(wanted)
            else:
                self.sender.answered(taken, errors_of(answer))

    async def _ask(self, taken: dict[Key, Wanted]) -> Any:
        version = VERSION
        if any(wanted.decision.client_version == EPOCH_BUMPED for wanted in taken.values()):
            newest = await self._link.newest_version(WriteTxnMarkersRequest.API_KEY)
            version = VERSION_WITH_EPOCHS if newest >= VERSION_WITH_EPOCHS else VERSION
        pending = await self._link.begin(request_of(taken.values()), version)
        deadline = trio.current_time() + self._link.timeout_s
        while trio.current_time() < deadline:
            body = await self._look(pending)
            if body is not None:
                return decode_response(WriteTxnMarkersRequest.API_KEY, version, body)
            if self.sender.leads_none(self.broker_id, taken.values()):
                raise TimeoutError("it leads none of the partitions any more")
        raise TimeoutError("no answer")

    @staticmethod
    async def _look(pending: Pending) -> memoryview | None:
        with trio.move_on_after(LOOK_S):
            return await pending.wait()
        return None


def request_of(markers: Iterable[Wanted]) -> WriteTxnMarkersRequest:
    """A request with one entry for each transaction."""
    by_id: dict[str, list[Wanted]] = {}
    for wanted in markers:
        by_id.setdefault(wanted.transaction.transactional_id, []).append(wanted)
    entry = WriteTxnMarkersRequest.WritableTxnMarker
    entries = []
    for group in by_id.values():
        topics: dict[str, list[int]] = {}
        for wanted in group:
            topics.setdefault(wanted.tp.topic, []).append(wanted.tp.partition)
        decision = group[0].decision
        entries.append(
            entry(
                producer_id=decision.producer_id,
                producer_epoch=decision.epoch,
                transaction_result=decision.state is State.PREPARE_COMMIT,
                topics=[
                    entry.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=group[0].shard.coordinator_epoch,
                transaction_version=decision.client_version,
            )
        )
    return WriteTxnMarkersRequest(markers=entries)


def errors_of(answer: Any) -> dict[tuple[int, Any], int]:
    """The errors in an answer, by producer id and partition."""
    return {
        (marker.producer_id, TopicPartition(topic.name, p.partition_index)): p.error_code
        for marker in answer.markers
        for topic in marker.topics
        for p in topic.partitions
    }
