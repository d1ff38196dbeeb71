"""The cause that a failed check names, by the cluster's events and the groups' offsets."""

from __future__ import annotations

from highwater.pytest_plugin.reasons import of_acknowledged, of_processed, of_repeated

KILLED = "kill broker-3: ended by SIGKILL, leading __consumer_offsets-2, orders-t3-0, orders-t3-1"


def test_the_leader_that_died_is_named_with_the_remedy() -> None:
    first, second = of_acknowledged("orders-t3", ["cut broker-1: begun", KILLED])
    assert first.startswith("broker-3 died while it led orders-t3-0, orders-t3-1. What a producer")
    assert "acks=all" in second


def test_a_leader_of_another_topic_is_no_reason() -> None:
    assert of_acknowledged("orders", [KILLED]) == []
    assert of_acknowledged("orders-t", [KILLED]) == []
    assert of_acknowledged("orders-t3", ["kill broker-3: ended by SIGKILL, leading nothing"]) == []


def test_a_record_that_was_committed_too_early() -> None:
    groups = [{"group": "app", "committed": {"orders-0": 4, "orders-1": 9}}]
    first, remedy = of_processed("orders-0", 3, groups)
    assert first == (
        "group app has committed orders-0 up to offset 4, past this record, and is not given it"
        " again:"
    )
    assert remedy == "commit a record when its work is done, not before"


def test_a_record_that_is_still_to_come() -> None:
    groups = [{"group": "app", "committed": {"orders-0": 3}}, {"group": "x", "committed": {}}]
    first, remedy = of_processed("orders-0", 3, groups)
    assert first.endswith("had not come to this record yet:")
    assert remedy == "kafka.wait.lag_below('app', 1) waits for that"


def test_a_record_that_was_processed_again() -> None:
    groups = [{"group": "app", "committed": {"orders-0": 4}}, {"group": "x", "committed": {}}]
    told = of_repeated("orders-0", [f"03:02:01.123 {KILLED}"], groups)
    assert told[:2] == [
        f"in this test: 03:02:01.123 {KILLED}",
        "group app has committed orders-0 up to offset 4",
    ]
    assert told[2].startswith("a record is read again when its offset was not committed before")
    assert len(of_repeated("orders-0", ["an event"] * 100, [])) < 10
