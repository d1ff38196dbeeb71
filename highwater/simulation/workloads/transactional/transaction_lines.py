"""The transactions of a run as lines of a history, for the SQL that looks for circles (T8, T9).

A line has what that SQL asks for: what was sent in which transaction and where it stands, what was
read inside a transaction, and how each transaction ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from highwater.simulation.workloads.transactional.transactions_client import TOPIC

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.workloads.transactional.transaction_ledger import Told


def lines(transactions: Iterable[Told]) -> list[dict[str, Any]]:
    """The lines.  They have no times, because only offsets and reads decide about circles."""
    operations = count(1)
    return [line for told in transactions for line in _of(told, operations)]


def _of(told: Told, operations: Iterator[int]) -> Iterator[dict[str, Any]]:
    common = {"process": told.name, "topic": TOPIC, "txn": told.name}
    for tp, values in told.values.items():
        for value in values:
            sent = {**common, "f": "send", "op": next(operations), "value": value.decode()}
            yield {**sent, "type": "invoke", "partition": tp.partition}
            if (place := told.places.get(value)) is not None:
                yield {**sent, "type": "ok", **_place(*place)}
    for tp, offset, value in told.read:
        yield {
            **common, "f": "poll", "type": "ok", "op": next(operations), "value": value.decode(),
            "isolation": "read_committed", **_place(tp, offset),
        }  # fmt: skip
    end = {**common, "f": "end_txn", "op": next(operations)}
    end["transactional_id"] = told.transactional_id
    if told.fate.may_be_visible:
        yield {**end, "type": "invoke", "which": "commit", "t_ns": 0}
        if told.fate.is_committed:
            yield {**end, "type": "ok", "which": "commit", "t_ns": 0}
    else:
        yield {**end, "type": "ok", "which": "abort", "t_ns": 0}


def _place(tp: TopicPartition, offset: int) -> dict[str, int]:
    return {"partition": tp.partition, "offset": offset}
