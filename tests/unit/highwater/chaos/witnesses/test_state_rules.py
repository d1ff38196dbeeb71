"""The rules on the cluster's own state: silent on a clean history, loud on each kind of break."""

from __future__ import annotations

from highwater.chaos.witnesses import state_rules as rules
from highwater.cluster.faults.witness import PartitionState
from highwater.kafka.types import TopicPartition

TP = TopicPartition("t", 0)


def seen(*states: tuple[int, int, tuple[int, ...]]) -> rules.Seen:
    return [(t, TP, PartitionState(*state, 1)) for t, state in enumerate(states)]


CLEAN = ((1, 0, (1, 2, 3)), (1, 0, (1, 2)), (2, 1, (2,)), (-1, 2, (2,)), (2, 3, (2, 1)))


def test_a_clean_history_breaks_nothing() -> None:
    for found in (rules.leader_in_isr(seen(*CLEAN)), rules.epochs_and_leaders(seen(*CLEAN))):
        assert found.violations == 0
        assert found.examined == len(CLEAN)


def test_a_leader_outside_of_the_isr() -> None:
    found = rules.leader_in_isr(seen(*CLEAN, (3, 4, (1, 2))))
    assert found.violations == 1
    assert "leader 3 of epoch 4" in found.examples[0]


def test_an_epoch_that_falls_is_a_stale_write() -> None:
    found = rules.epochs_and_leaders(seen(*CLEAN, (1, 0, (1, 2))))
    assert found.violations == 1
    assert "epoch 3 was followed by 0" in found.examples[0]


def test_two_leaders_of_one_epoch() -> None:
    found = rules.epochs_and_leaders(seen((1, 4, (1, 2)), (2, 4, (1, 2))))
    assert found.examples == ["t-0: epoch 4 had leaders 1 and 2"]


def test_replicas_that_differ_or_lack_a_record() -> None:
    log = {0: (0, "a"), 1: (0, "b")}
    assert rules.logs_match({TP: {1: log, 2: dict(log)}}).violations == 0
    other = rules.logs_match({TP: {1: log, 2: {0: (0, "a"), 1: (1, "x")}}})
    assert other.violations == 1
    assert rules.logs_match({TP: {1: log, 2: {0: (0, "a")}}}).examples == [
        "t-0 offset 1: broker-1 (0, 'b'), broker-2 nothing"
    ]


def test_epoch_files_increase_in_both_columns() -> None:
    assert rules.epoch_files({(1, TP): [(0, 0), (2, 5)]}).violations == 0
    assert rules.epoch_files({(1, TP): [(0, 0), (2, 0)]}).violations == 1
    assert rules.epoch_files({(1, TP): [(2, 0), (1, 5)]}).violations == 1


def test_controller_epochs_never_fall() -> None:
    assert rules.controller_epochs([1, 2, 5]).violations == 0
    assert rules.controller_epochs([1, 3, 2]).violations == 1
