"""Checks that a broker has nothing unfinished when nothing happens any more.

This finds mistakes in state that is only in memory: a request that will never be answered, an ISR
that some broker did not learn of, a deleted file that stays open, a file that nobody is going to
delete, a high watermark that is never written to a checkpoint.  The check is made at the end of a
run, once clients are silent and every partition has its full ISR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from highwater.broker.log.checkpoints import (
    LEADER_EPOCHS,
    META_PROPERTIES,
    MalformedFileError,
    decode_epochs,
)
from highwater.kafka.types import TopicPartition
from highwater.simulation.rules.replayed_state import forgetful
from highwater.simulation.rules.second_opinions import disagreement
from highwater.world.sim.inode import Inode

if TYPE_CHECKING:
    from highwater.broker.server import Broker
    from highwater.broker.services import Services
    from highwater.simulation.rules.agreed_log import PartitionTruth
    from highwater.world.sim.disk import SimDisk
    from highwater.world.sim.kernel import Life
    from highwater.world.sim.zookeeper_server import Znode

_OFTEN_MS = 2000
"""The longest interval of retention's checks with which one is sure to happen while a run rests."""
_GONE = (".deleted", "-delete")


def unrest(
    broker: Broker | None,
    disk: SimDisk,
    data: str,
    truths: Mapping[TopicPartition, PartitionTruth],
    marks: Mapping[TopicPartition, int],
    tree: Mapping[str, Znode],
    addresses: Mapping[int, tuple[str, int]],
) -> str | None:
    """The first thing that one broker has not finished, or None.  `marks` are the high watermarks
    on its disk, `tree` is ZooKeeper's, `addresses` are those of the brokers."""
    if broker is None:
        return "does not run"
    services = broker.services
    world: Any = services.world
    found = chain(
        _waiting(services),
        _sessions(broker),
        _ignorance(services, truths),
        _unwritten(services, marks),
        _epochs(services, disk),
        _times(broker, truths),
        _uncleanable(broker),
        _overdue(broker),
        _rubbish(services, disk, data),
        hasty(
            disk,
            world.process,
            tuple(services.logs.offline_dirs),
            broker.config.log_segment_delete_delay_ms,
        ),
        forgetful(broker, disk, truths),
        disagreement(broker, disk, truths, tree, addresses),
    )
    return next(found, None)


def mistaken_leader(brokers: Mapping[int, Broker]) -> str | None:
    """A leader whose idea of a follower's log differs from that log, or None."""
    for number, broker in brokers.items():
        for tp, partition in broker.services.replicas.partitions.items():
            for follower_id, follower in partition.followers.items() if partition.is_leader else ():
                other = brokers.get(follower_id)
                log = other.services.logs.logs.get(tp) if other is not None else None
                known = follower.log_start_offset, follower.log_end_offset
                if log is not None and known != (log.log_start_offset, log.log_end_offset):
                    found = f"{log.log_start_offset} to {log.log_end_offset}"
                    return f"broker-{number} has {known} of {follower_id}'s {tp}, which is {found}"
    return None


def _waiting(services: Services) -> Iterator[str]:
    for kind, (_, waiting) in services.purgatories.sizes().items():
        if waiting and kind != "Fetch":  # a follower's Fetch always waits
            yield f"has {waiting} delayed operations of {kind}"


def _sessions(broker: Broker) -> Iterator[str]:
    found = len(broker.services.replicas.sessions)
    slots = broker.config.max_incremental_fetch_session_cache_slots
    if found > slots:
        yield f"remembers {found} fetch sessions, and may remember {slots}"


def _ignorance(
    services: Services, truths: Mapping[TopicPartition, PartitionTruth]
) -> Iterator[str]:
    for tp, truth in truths.items():
        known = services.metadata.partition(tp)
        if known is None or truth.state is None or set(known.isr) != set(truth.state.isr):
            yield f"knows {tp} as {known}, which is {truth.state}"


def _unwritten(services: Services, marks: Mapping[TopicPartition, int]) -> Iterator[str]:
    for tp, partition in services.replicas.partitions.items():
        if partition.log is not None and marks.get(tp, 0) != partition.high_watermark:
            now, written = partition.high_watermark, marks.get(tp, 0)
            yield f"has the high watermark {now} of {tp}, and {written} in its checkpoint"
        hw, log = partition.high_watermark, partition.log
        if log is not None and log.log_start_offset > hw:
            yield f"has the high watermark {hw} of {tp}, which starts at {log.log_start_offset}"


def _epochs(services: Services, disk: SimDisk) -> Iterator[str]:
    for tp, log in services.logs.logs.items():
        file = disk.find(f"{log.dir}/{LEADER_EPOCHS}")
        try:
            written = decode_epochs(bytes(file.data)) if isinstance(file, Inode) else []
        except MalformedFileError:
            written = []  # a power loss has torn it, and the next start reads the log
        end = log.log_end_offset  # what begins there has no batch, and need not be in the file
        known, written = ([e for e in of if e[1] < end] for of in (log.epochs.entries, written))
        if written != known:
            yield f"has the epochs {known} of {tp}, and {written} in {LEADER_EPOCHS}"


def _times(broker: Broker, truths: Mapping[TopicPartition, PartitionTruth]) -> Iterator[str]:
    for tp, log in broker.services.logs.logs.items():
        truth = truths.get(tp)
        replica = truth.replicas.get(broker.config.broker_id) if truth is not None else None
        if replica is None:
            # if the topic is gone, an empty log stays in a directory that failed at its creation
            if log.size or tp in truths:
                yield f"has a log of {tp}, which is not one of its partitions"
            continue
        mirror = replica.mirror
        for segment in log.segments:
            if (wrong := mirror.misdated(segment)) is not None:
                yield f"{wrong} ({tp})"


def _uncleanable(broker: Broker) -> Iterator[str]:
    for tp, why in broker.cleaner.uncleanable.items():
        yield f"passes over {tp} when it compacts: {why}"


def _overdue(broker: Broker) -> Iterator[str]:
    """Segments that retention should have deleted at its last check, or the one before."""
    interval = broker.config.log_retention_check_interval_ms
    now = broker.services.world.clock.wall_ms()
    for tp, log in broker.services.logs.logs.items() if interval <= _OFTEN_MS else ():
        sizes, config = [segment.size for segment in log.segments], log.config
        oldest, rest = log.segments[0], sum(sizes[1:])
        if not config.deletes or not sizes[0]:
            continue
        if 0 <= config.retention_bytes <= rest:
            yield f"has {rest} bytes of {tp} in later segments, and keeps {oldest.file.path}"
        if 0 <= config.retention_ms < now - oldest.largest_timestamp - 2 * interval:
            yield f"keeps {oldest.file.path} longer than {config.retention_ms} ms"


def _rubbish(services: Services, disk: SimDisk, data: str) -> Iterator[str]:
    if disk.find(f"{data}/{META_PROPERTIES}") is None:
        yield f"has no {META_PROPERTIES} in {data}"
    closing, deleting = services.logs.trash.contents()
    for file in disk.handles:
        if file.process.alive and not file.stands and file not in closing:
            yield f"keeps {file.path} open, which is gone"
    for path, _ in disk.files():
        if any(word in path for word in _GONE) and not path.startswith(tuple(deleting)):
            yield f"is not going to delete {path}"


def hasty(disk: SimDisk, process: Life, failed: tuple[str, ...], least_ms: int) -> Iterator[str]:
    """Deleted segments that a process closed before file.delete.delay.ms was over; not those in a
    directory that failed, because that closes all its files and may end the broker."""
    for closer, path, after_s in disk.closed:
        if closer is not process or path.startswith(failed) or not path.endswith(".log.deleted"):
            continue
        if after_s * 1000 < least_ms - 1:  # 1 ms for rounding, as the delay was counted in floats
            yield f"closed {path} {after_s * 1000:.0f} ms after it was given that name"
