"""The columns of a run's history: its writers write them, and DuckDB and Spark read them.

It imports only the standard library: spark-submit jobs use it on drivers with nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

COLUMNS: Final[dict[str, str]] = {
    "run": "STRING",  # the run's id: equal on all lines
    "seed": "BIGINT",
    "index": "BIGINT",  # position in the file, unique, from 0
    "process": "STRING",  # one client instance, for instance "producer-kafka-python-0"
    "client": "STRING",  # its library: kafka-python, confluent-kafka, highwater
    # send, poll, assign, commit, committed, list_offsets, init_txn, end_txn; full_read: a user's
    # own history claims that a partition was read from start to end; offset_fetch: a coordinator's
    # answer, if the client's own log has it; of a share group: acquire (a poll that takes records),
    # acknowledge, drained (the group has taken everything that was acknowledged before t_ns)
    "f": "STRING",
    "type": "STRING",  # invoke, ok, fail, info
    "op": "BIGINT",  # joins the phases of one operation; unique in the file
    "phase": "STRING",  # run, final
    "t_ns": "BIGINT",
    "topic": "STRING",
    "partition": "INT",
    "key": "STRING",
    "value": "STRING",  # unique; see `make_value`
    "offset": "BIGINT",  # acknowledged, read, assigned, or answered (list_offsets)
    "leader_epoch": "INT",  # of the record read, or of the answer; -1 unknown
    "hw": "BIGINT",  # high watermark known with the answer; -1 unknown
    "lso": "BIGINT",
    "producer_id": "BIGINT",
    "producer_epoch": "INT",
    "sequence": "BIGINT",
    "generation": "INT",  # group generation, where there is one
    "error": "STRING",  # Kafka's name of the error, or the client's
    "attempt": "INT",
    "connection": "STRING",
    "acks": "INT",  # -1 all, 1, 0
    "idempotent": "BOOLEAN",
    "max_in_flight": "INT",  # requests in flight at once; 1 keeps their order
    "expect_loss": "BOOLEAN",  # the topic's class: acknowledged records may be lost (acks=1)
    "api": "STRING",
    "poll_id": "BIGINT",  # one call of poll; unique in the file
    "n": "INT",  # records of that poll
    # list_offsets: earliest, latest, stable (the LSO); end_txn: commit, abort; acknowledge: accept,
    # release, reject
    "which": "STRING",
    "group_id": "STRING",  # of a group's member: assign, commit, committed, acquire, acknowledge
    "member": "STRING",  # its member id, where the client tells it
    "isolation": "STRING",  # of a poll: read_committed, or none
    "transactional_id": "STRING",  # of init_txn and end_txn
    "txn": "STRING",  # a transaction's name: of its sends, polls, end_txn (`which`: commit, abort)
    "amount": "BIGINT",  # of a send: what the account of this partition gets (T4)
    "copy_of": "STRING",  # of a send: the value that was read and is copied (T5)
    "delivery_count": "INT",  # of acquire and acknowledge: how often the group was given the record
    "delivery_limit": "INT",  # of acquire, invoke: the greatest such count
}
"""Field -> SQL type.  A field without a value is left out of the line (NULL)."""


def require_columns(line: Mapping[str, Any]) -> None:
    """Raises ValueError for a field that the history does not have: no check could see it."""
    if unknown := sorted(line.keys() - COLUMNS.keys()):
        raise ValueError(
            f"the history has no column {', '.join(unknown)}: add it to history_schema.COLUMNS"
        )
