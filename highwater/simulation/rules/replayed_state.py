"""Compares what brokers keep in memory with a replay of the logs from which it comes.

A broker changes its memory step by step, and reads a log again only when it starts, cuts it, or
takes over: a mistake in a step shows only then, or never in a short run.  So the state is computed
again and compared.  Producers and open transactions of every replica are computed by a reader of
this package, at each new term, after each cut, and at rest.  At rest, when every high watermark is
at its log's end, so are the LSO, and groups and transactions as a broker that takes over would load
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from highwater.broker.coordinator.group.group import Group, State
from highwater.broker.coordinator.partition_loading import BatchReplay
from highwater.broker.coordinator.transaction.records import NO_EPOCH, NO_ID
from highwater.kafka.wire.records import batches
from highwater.world.sim.inode import Inode

if TYPE_CHECKING:
    from highwater.broker.coordinator.runtime import Coordinator
    from highwater.broker.coordinator.transaction.records import StoredTransaction
    from highwater.broker.coordinator.transaction.transaction import Transaction
    from highwater.broker.log.log import Log
    from highwater.broker.server import Broker
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.rules.agreed_log import PartitionTruth
    from highwater.simulation.rules.mirror import Batch
    from highwater.world.sim.disk import SimDisk

_SEQUENCES = 1 << 31
SETTLED = (State.EMPTY, State.STABLE)
"""The states in which a group is compared; one that rebalances is ahead of its log."""


@dataclass(slots=True)
class Producer:
    """One producer id in one partition, as the log has it."""

    epoch: int = -1
    sequence: int = -1
    """The sequence of its last record in this epoch; -1 if a marker began the epoch."""
    open: int = -1
    """The first offset of its open transaction."""
    last_offset: int = -1
    timestamp: int = -1

    @property
    def reach(self) -> tuple[int, int]:
        return self.epoch, self.sequence

    def __str__(self) -> str:
        return f"epoch {self.epoch}, sequence {self.sequence}, open from {self.open}"


def producers(log: Iterable[Batch]) -> dict[int, Producer]:
    """The state of each producer id after these batches."""
    found: dict[int, Producer] = {}
    for batch in log:
        if batch.producer_id < 0:
            continue
        one = found.setdefault(batch.producer_id, Producer())
        if batch.control:
            if not batch.records:
                continue  # emptied by compaction
            one.open = -1
            if batch.producer_epoch != one.epoch:
                one.sequence = -1
        else:
            if batch.transactional and one.open < 0:
                one.open = batch.base
            one.sequence = (batch.base_sequence + batch.last - batch.base) % _SEQUENCES
        one.epoch, one.last_offset = batch.producer_epoch, batch.last
        one.timestamp = batch.max_timestamp
    return found


def forgetful(
    broker: Broker, disk: SimDisk, truths: Mapping[TopicPartition, PartitionTruth]
) -> Iterator[str]:
    """The differences between this broker's memory and its logs."""
    services = broker.services
    now = services.world.clock.wall_ms()
    for tp, log in services.logs.logs.items():
        truth = truths.get(tp)
        replica = truth.replicas.get(broker.config.broker_id) if truth is not None else None
        if replica is not None:
            replayed = producers(replica.mirror.batches)
            for wrong in differing(log, replayed, now):
                yield f"{wrong} ({tp})"
            partition = services.replicas.partitions.get(tp)
            if partition is None or log.log_start_offset:
                continue
            known, end = partition.last_stable_offset, stable_end(log, replayed)
            if known != end:
                yield f"has the LSO {known} of {tp}, and by the log it is {end}"
    yield from _groups(broker, disk)
    yield from _transactions(broker, disk)


def stable_end(log: Log, replayed: Mapping[int, Producer]) -> int:
    """The LSO of a log that is committed up to its end."""
    return min((one.open for one in replayed.values() if one.open >= 0), default=log.log_end_offset)


def differing(log: Log, replayed: Mapping[int, Producer], now_ms: int) -> Iterator[str]:
    """The differences between the producers that a log has in memory and a replay."""
    states, whole = log.producers, not log.log_start_offset and not log.config.compacts
    for producer_id, wanted in replayed.items():
        if wanted.last_offset < log.log_start_offset:
            continue
        entry = states.get(producer_id)
        if entry is None:
            if now_ms - wanted.timestamp < states.expiration_ms:
                yield f"knows nothing of producer {producer_id}, of {wanted}"
            continue
        known, must = Producer(entry.epoch, entry.last_sequence, entry.txn_first_offset), wanted
        if log.config.compacts and (known.sequence < 0 or known.reach >= wanted.reach):
            # a marker's epoch goes with its record; and where a cut takes the last batch, those
            # before it may be gone already, which a snapshot still knows
            must = replace(wanted, epoch=known.epoch, sequence=known.sequence)
            if known.open > wanted.last_offset or 0 <= known.open < wanted.open:
                must.open = known.open  # by a batch that is gone; its marker was cut off
        elif not whole and min(known.open, wanted.open) >= 0:
            must = replace(wanted, open=known.open)  # its first records may be gone
        if str(known) != str(must):
            yield f"knows producer {producer_id} by {known}, and the log has {wanted}"
    if whole and (
        others := [e.producer_id for e in states.entries if e.producer_id not in replayed]
    ):
        yield f"knows producer {others[0]}, which the log does not have"


def _shards(coordinator: Coordinator[Any, Any], disk: SimDisk) -> Iterator[tuple[int, Any, Any]]:
    """Yields (partition, its shard, the shard as a broker that takes over would load it)."""
    for number, shard in coordinator.shards.items():
        if not (shard.loaded and shard.leads):
            continue
        coordinator.advance(shard)  # each request does this first
        fresh = coordinator.new_shard(shard.partition)
        replay: BatchReplay[Any] = BatchReplay(coordinator.topic, coordinator.decode, fresh.replay)
        for segment in shard.partition.leader_log().segments:
            file = disk.find(segment.file.path)
            data = bytes(file.data) if isinstance(file, Inode) else b""
            for header in batches(data):
                replay.batch(data, header)
        fresh.undecided(replay.loaded)
        yield number, shard, fresh


def _groups(broker: Broker, disk: SimDisk) -> Iterator[str]:
    for number, shard, fresh in _shards(broker.services.groups, disk):
        if shard.held != fresh.held:
            yield f"holds the offsets {shard.held}, and {fresh.held} by the log ({number})"
        for name in sorted({*shard.groups, *fresh.groups}):
            mine, logged = (of.groups.get(name) or Group(name) for of in (shard, fresh))
            for wrong in unlike(mine, logged):
                yield f"{wrong} ({number})"


def unlike(mine: Group, logged: Group) -> Iterator[str]:
    """The differences between a group at rest and its log."""
    if mine.state is State.DEAD:
        yield f"takes group {mine.group_id} for dead, and it is coordinated here"
    for known, wanted in zip(_told(mine), _told(logged), strict=True):
        if known != wanted and (mine.state in SETTLED or isinstance(known, dict)):
            yield f"has {known} of group {mine.group_id}, and {wanted} in the log"


def _told(group: Group) -> tuple[Any, ...]:
    """What is compared: offsets, those of open transactions, and a settled group's generation."""
    members = sorted((member.member_id, member.instance_id) for member in group.members.values())
    generation = (group.generation, group.protocol_type, group.protocol, group.leader, members)
    return group.offsets, group.open_offsets, generation


def _transactions(broker: Broker, disk: SimDisk) -> Iterator[str]:
    for number, shard, fresh in _shards(broker.services.transactions, disk):
        for name in sorted({*shard.transactions, *fresh.transactions}):
            known, wanted = (_stored(of.transactions.get(name)) for of in (shard, fresh))
            if known != wanted:
                yield f"has transaction {name} as {known}, and {wanted} in the log ({number})"


def _stored(transaction: Transaction | None) -> StoredTransaction | None:
    """What is compared of a transaction: all but the former producer id, which is kept for a retry
    and is not in the log."""
    stored = transaction.stored if transaction is not None else None
    return stored and replace(stored, last_producer_id=NO_ID, last_epoch=NO_EPOCH)
