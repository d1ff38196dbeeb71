"""Transactions under faults: whole or not at all, ended in bounded time, and zombies fenced."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import CONTROL, TRANSACTIONAL
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth
from highwater.simulation.rules.mirror import Batch
from highwater.simulation.rules.stable_offsets import StableOffsets
from highwater.simulation.seed_run import simulate


@pytest.mark.parametrize("seed", range(2))
def test_transactions_stay_whole(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=10, transactions=True))
    assert outcome.violation is None, str(outcome.violation)
    seen = outcome.operations
    assert seen["txn committed"] >= 3
    assert seen["txn aborted"]
    assert seen["txn offsets"]
    assert seen["txn polled"]
    assert seen["txn producers lost"], "some were fenced"


@pytest.mark.parametrize(("hw", "lso"), [(2, 2), (3, 2), (5, 2), (6, 2), (7, 4), (9, 4), (10, 10)])
def test_the_lso_of_an_answer_is_that_of_the_committed_log(hw: int, lso: int) -> None:
    """Records of producer 1 at 2 and 3, of producer 2 at 4; their markers at 6 and 9."""
    committed = [
        Batch(0, 1, 0, 0, b""),
        Batch(2, 3, 0, 0, b"", TRANSACTIONAL, 1),
        Batch(4, 5, 0, 0, b"", TRANSACTIONAL, 2),
        Batch(6, 6, 0, 0, b"", TRANSACTIONAL | CONTROL, 1),
        Batch(7, 8, 0, 0, b""),
        Batch(9, 9, 0, 0, b"", TRANSACTIONAL | CONTROL, 2),
    ]
    tp = TopicPartition("t", 0)
    truth = PartitionTruth(tp)
    truth.commit(committed, 10)
    broken: list[str] = []
    book: Any = SimpleNamespace(
        partitions={tp: truth}, broken=lambda rule, what: broken.append(rule)
    )
    offsets = StableOffsets(book, Counter())
    offsets.told(tp, hw, lso)
    assert not broken
    offsets.told(tp, hw, lso - 1)
    assert broken == ["T7"]
    truth.given_up.append((9, 10))
    offsets.told(tp, hw, lso - 2)
    assert broken == ["T7"]
