"""The tables that a contract's rules read: its own promises, and the records.

The same for DuckDB and Spark.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from highwater.verdict import catalog
from highwater.verdict.catalog import Check
from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.contracts.fields import FIELDS
from highwater.verdict.location import Folder, sql_folder

_NAMES: Final = {"time": "time_ms", "transaction": "txn"}
EXTRACTED: Final = {
    **{_NAMES.get(name, name): kind for name, kind in FIELDS.items()},
    "tombstone": "BOOLEAN",
    "wrong_field": "STRING",
    "wrong": "STRING",
}
"""The columns that `fields.extract` gives, in its order."""
RECORDS: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp_ms": "BIGINT",
    **EXTRACTED,
}
PROMISES: Final[dict[str, dict[str, str]]] = {
    "promises": {
        "topic": "STRING",
        "compacted": "BOOLEAN",
        "numbered_per": "STRING",
        "timed_per": "STRING",
        "no_gap": "BOOLEAN",
        "no_repeat": "BOOLEAN",
        "in_order": "BOOLEAN",
        "monotonic": "BOOLEAN",
    },
    "pipelines": {
        "pipeline": "INT",
        "source": "STRING",
        "target": "STRING",
        "source_compacted": "BOOLEAN",
        "at_least": "BOOLEAN",
        "at_most": "BOOLEAN",
        "in_order": "BOOLEAN",
        "whole": "BOOLEAN",
        "within_ms": "BIGINT",
        "read_ms": "BIGINT",
    },
    "sums": {
        "number": "INT",
        "topic": "STRING",
        "place": "INT",
        "per_key": "BOOLEAN",
        "total": "DECIMAL(38, 9)",
    },
}
COVERAGE: Final = "SELECT c.* FROM coverage c"
"""The query for (topic, records, field, present) of each field, which shows whether the place that
the contract names exists.
"""


def rows(contract: Contract, read_ms: int) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of PROMISES; `read_ms` is the wall clock before the first record was read."""
    promises = [
        (
            t.name,
            t.compacted,
            t.per["sequence"],
            t.per["time"],
            *(
                rule in t.must
                for rule in ("no gap", "no repeat", "order per key", "monotonic time")
            ),
        )
        for t in contract.topics.values()
    ]
    pipelines = [
        (
            n,
            p.source,
            p.target,
            contract.topics[p.source].compacted,
            bool({"at least once", "exactly once"} & set(p.must)),
            bool({"at most once", "exactly once"} & set(p.must)),
            "in order per key" in p.must,
            "transactions whole" in p.must,
            p.within_ms,
            read_ms,
        )
        for n, p in enumerate(contract.pipelines, 1)
    ]
    sums = [
        (n, topic, place, s.per_key, s.total)
        for n, s in enumerate(contract.sums, 1)
        for place, topic in enumerate(s.topics, 1)
    ]
    return {"promises": promises, "pipelines": pipelines, "sums": sums}


def rules_folder() -> Folder:
    return sql_folder() / "contracts"


def demanded(contract: Contract) -> list[Check]:
    """The rules that this contract demands."""
    asked = {rule for t in contract.topics.values() for rule in t.must}
    asked |= {rule for p in contract.pipelines for rule in p.must}
    asked |= {"within"} if any(p.within_ms for p in contract.pipelines) else set()
    asked |= {"sums"} if contract.sums else set()
    ids = {"K1"}.union(*(ASKS[rule] for rule in asked))
    return [check for check in catalog.checks(rules_folder()) if check.id in ids]


ASKS: Final[dict[str, Sequence[str]]] = {
    "no gap": ("K2",),
    "no repeat": ("K3",),
    "order per key": ("K4",),
    "monotonic time": ("K5",),
    "sums": ("K6",),
    "at least once": ("K7",),
    "at most once": ("K8", "K9"),
    "exactly once": ("K7", "K8", "K9"),
    "within": ("K10",),
    "in order per key": ("K11",),
    "transactions whole": ("K12",),
}
"""A promise's words -> the rules that check it."""
