"""Expected losses, as excuses for the checkers of transactions and groups.

Power losses beyond the promise of acks=all (see `PartitionTruth.given_up`) take acknowledged
records away, and everything that depends on them.  A record whose marker is gone is open again, or
shares the fate of its producer's next transaction; a lost decision or commit counts as never made.
The excuses follow `given_up`: an offset, or everything written to a log between two moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from highwater.broker.coordinator.shard import partition_for
from highwater.kafka.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.simulation.rules.agreed_log import PartitionTruth
    from highwater.simulation.rules.findings import Book

GROUPS, DECISIONS = GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC


class Moment(NamedTuple):
    """The state of a log: losses so far, and the highest HW."""

    losses: int
    exposed: int


def log_of(book: Book, topic: str, key: str) -> PartitionTruth | None:
    """The coordinator's log that has this group or transactional id."""
    count = sum(tp.topic == topic for tp in book.partitions)
    return book.partitions.get(TopicPartition(topic, partition_for(key, count))) if count else None


def moment(book: Book, topic: str, key: str) -> Moment:
    return moment_of(log_of(book, topic, key))


def lost_between(
    book: Book, topic: str, key: str, since: Moment, until: Moment | None = None
) -> bool:
    """Whether a record written after `since` and before `until` was given up."""
    return gave_up(log_of(book, topic, key), since, until)


def coordinator_of(book: Book, topic: str, key: str) -> str:
    """The host that leads the key's log, as ZooKeeper has it."""
    truth = log_of(book, topic, key)
    leader = truth.state.leader if truth is not None and truth.state is not None else -1
    return f"broker-{leader}"


def former_leads(book: Book, topic: str, key: str, host: str, since_s: float) -> bool:
    """Whether a host that ZooKeeper no longer names as the key's leader has led, in its own view,
    at some time since `since_s`: then its answer proves nothing.  A broker that knows that it has
    ceased to lead may not answer."""
    truth = log_of(book, topic, key)
    found = truth.replicas.values() if truth is not None else ()
    return any(
        f"broker-{replica.broker}" == host
        and (replica.led_until >= since_s or (replica.view is not None and replica.view.leads))
        for replica in found
    )


def moment_of(truth: PartitionTruth | None) -> Moment:
    return Moment(len(truth.given_up), truth.exposed) if truth is not None else Moment(0, 0)


def gave_up(truth: PartitionTruth | None, since: Moment, until: Moment | None = None) -> bool:
    """Whether this log gave up a record written after `since` and before `until`."""
    return truth is not None and any(
        end > since.exposed and (until is None or start < until.exposed or until.losses > at)
        for at, (start, end) in enumerate(truth.given_up)
        if at >= since.losses
    )


def losses_of(book: Book, tp: TopicPartition) -> int:
    """The number of known losses: a record sent now can be lost only by later ones."""
    truth = book.partitions.get(tp)
    return len(truth.given_up) if truth is not None else 0


def lost_since(book: Book, tp: TopicPartition, offset: int, losses: int) -> bool:
    """Whether a record written there, when `losses` losses were known, was given up since."""
    truth = book.partitions.get(tp)
    since = truth.given_up[losses:] if truth is not None else []
    return any(start <= offset < end for start, end in since)


def excused(book: Book, tp: TopicPartition, offset: int) -> bool:
    """Whether a record may be lost, or its transaction may have ended otherwise."""
    truth = book.partitions.get(tp)
    if truth is None:
        return False
    return truth.excuses(offset) or any(a <= offset < b for a, b in truth.undecided)
