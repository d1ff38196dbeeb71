"""T8 and T9 in the simulation: what the clients know of their transactions, judged by SQL."""

from __future__ import annotations

import pytest

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules import sim_checks
from highwater.simulation.workloads.transactional.transaction_ledger import Fate, Told
from highwater.simulation.workloads.transactional.transaction_lines import lines
from highwater.simulation.workloads.transactional.transactions_client import TOPIC

A, B = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def transaction(
    name: str, *places: tuple[TopicPartition, int], fate: Fate = Fate.COMMITTED
) -> Told:
    """A transaction with a record at each of these places."""
    told = Told(name, name, 0, fate)
    for tp, offset in places:
        value = f"{name}/{offset}".encode()
        told.values.setdefault(tp, []).append(value)
        told.places[value] = (tp, offset)
    return told


def reads(reader: Told, *writers: Told) -> None:
    for writer in writers:
        value, (tp, offset) = next(iter(writer.places.items()))
        reader.read.append((tp, offset, value))


def judged(*transactions: Told) -> tuple[list[str], int]:
    broken, counted = sim_checks.judge_transactions(TOPIC, lines(transactions))
    return [f"{check} {found}" for check, found, _ in broken], counted


@pytest.mark.parametrize("fate", [Fate.COMMITTED, Fate.UNKNOWN])
def test_each_reads_what_the_other_wrote(fate: Fate) -> None:
    one, other = transaction("one", (A, 0)), transaction("other", (B, 0), fate=fate)
    reads(one, other)
    assert judged(one, other) == ([], 0)
    reads(other, one)
    assert judged(one, other) == (["T9 1"], 0)


@pytest.mark.parametrize("fate", [Fate.OPEN, Fate.NEVER])
def test_what_was_never_to_be_visible_makes_no_circle(fate: Fate) -> None:
    """T3 has found it by then."""
    one, other = transaction("one", (A, 0)), transaction("other", (B, 0), fate=fate)
    reads(one, other)
    reads(other, one)
    assert judged(one, other) == ([], 0)


def test_circles_of_reads_of_one_and_of_three() -> None:
    one, two, three = (transaction(name, (A, n)) for n, name in enumerate(("a", "b", "c")))
    reads(one, two)
    reads(two, three)
    reads(three, one)
    assert judged(one, two, three) == (["T9 1"], 0)
    own = transaction("own", (A, 9))
    reads(own, own)
    assert judged(own) == (["T9 1"], 0)


def test_a_circle_of_writes_is_counted() -> None:
    one = transaction("one", (A, 0), (B, 1))
    other = transaction("other", (A, 1), (B, 0))
    assert judged(one, other) == ([], 1)
    assert judged(one, transaction("other", (A, 1), (B, 2))) == ([], 0)
    lost = transaction("other", (A, 1), (B, 0), fate=Fate.UNKNOWN)
    assert judged(one, lost) == ([], 0)
