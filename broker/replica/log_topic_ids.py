"""The topic ids of this broker's logs, as LeaderAndIsr names them.

A log that knows no id takes the one that the controller names, once.  A log that knows another one
belongs to another topic of that name: the replica takes no part (INCONSISTENT_TOPIC_ID).  The
answer to LeaderAndIsr names the ids that the logs have and the request does not name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from highwater.broker.log import metadata_file
from highwater.kafka.topic_ids import to_text

if TYPE_CHECKING:
    from highwater.broker.log.log import Log
    from highwater.broker.log.log_manager import LogManager
    from highwater.broker.replica.partition_states import LeaderAndIsrUpdate
    from highwater.kafka.types import TopicPartition

log = logging.getLogger(__name__)

WRITTEN_AT_ONCE = 20
"""The number of files written in one call of the worker thread."""


async def take(logs: LogManager, update: LeaderAndIsrUpdate) -> None:
    """Writes ids for the logs that have none.  A directory that fails goes offline."""
    todo = []
    for tp, _ in update.states:
        topic_id, replica_log = update.topic_ids.get(tp.topic), logs.get(tp)
        if topic_id is not None and replica_log is not None and replica_log.topic_id is None:
            todo.append((replica_log, topic_id))
    for first in range(0, len(todo), WRITTEN_AT_ONCE):
        some = todo[first : first + WRITTEN_AT_ONCE]
        failed = await logs.disk.run(lambda some=some: _write(some))  # type: ignore[misc]
        for replica_log, error in failed:
            logs.fail_dir(logs.dir_of(replica_log), error)


def _write(some: Sequence[tuple[Log, bytes]]) -> list[tuple[Log, OSError]]:
    failed = []
    for replica_log, topic_id in some:
        try:
            metadata_file.write(replica_log.disk, replica_log.dir, topic_id)
            replica_log.topic_id = topic_id
        except OSError as error:
            failed.append((replica_log, error))
    return failed


def fits(logs: LogManager, tp: TopicPartition, topic_id: bytes | None) -> bool:
    """Whether the partition's log, if there is one, belongs to the topic of this id."""
    replica_log = logs.get(tp)
    if topic_id is None or replica_log is None or replica_log.topic_id in (None, topic_id):
        return True
    known = replica_log.topic_id
    assert known is not None
    log.error(
        "%s belongs to the topic %s, and not to %s: it is neither led nor followed",
        replica_log.dir, to_text(known), to_text(topic_id),
    )  # fmt: skip
    return False


def unnamed(logs: LogManager, update: LeaderAndIsrUpdate) -> dict[str, bytes]:
    """The ids, by topic, that logs have and the request does not name."""
    found = {}
    for tp, _ in update.states:
        replica_log = logs.get(tp)
        known = None if replica_log is None else replica_log.topic_id
        if known is not None and known != update.topic_ids.get(tp.topic):
            found[tp.topic] = known
    return found
