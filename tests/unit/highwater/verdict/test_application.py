"""The lines made for an application that records nothing itself, judged by the checks' SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from highwater.verdict import duck, tables
from highwater.verdict.application import (
    Wait,
    as_processed,
    longest_waits,
    out_of_turn,
    with_application,
)
from highwater.verdict.history import encode_line, make_value
from highwater.verdict.results import Finding

pytestmark = pytest.mark.thorough

Line = dict[str, Any]
TOPIC = "orders"
OURS = [make_value("h1", "producer-1-0", n, n) for n in range(4)]


def send(op: int, value: str, offset: int | None, t_ns: int = 0) -> list[Line]:
    """A send of the history's own producer; without an ending where there is no offset."""
    line = {"f": "send", "process": "producer-1-0", "op": op, "topic": TOPIC, "partition": 0}
    line |= {"key": "k", "value": value, "acks": -1, "idempotent": True, "t_ns": t_ns + op}
    ending = [{**line, "type": "ok", "offset": offset, "t_ns": t_ns + op + 1}]
    return [{**line, "type": "invoke"}, *(ending if offset is not None else [])]


def poll(value: str | None, offset: int, key: str | None = "k", partition: int = 0) -> Line:
    line = {"f": "poll", "type": "ok", "process": "final", "phase": "final", "topic": TOPIC}
    return {**line, "partition": partition, "offset": offset, "key": key, "value": value}


def numbered(lines: list[Line]) -> list[Line]:
    return [
        {"run": "h1", "seed": 0, "client": "x", "index": n, **line} for n, line in enumerate(lines)
    ]


def findings(folder: Path, lines: list[Line], *checks: str) -> list[Finding]:
    folder.mkdir(exist_ok=True)
    (folder / "history.jsonl").write_bytes(b"".join(map(encode_line, lines)))
    (folder / "run.json").write_text(json.dumps({"topics": [{"name": TOPIC}]}))
    tables.build(folder)
    found = duck.run_checks(folder)["checks"]
    return [e for check in checks for e in found[check]["examples"] if e["kind"] == "violation"]


OWN = [line for n, value in enumerate(OURS) for line in send(n, value, n)]
READ = [poll(value, n) for n, value in enumerate(OURS)]


def test_records_of_the_application_are_held_against_nobody(tmp_path: Path) -> None:
    last = make_value("h1", "producer-1-0", 9, 9)
    theirs = [poll("theirs", 2, None, 1), poll("same", 5), poll("same", 0, "x", 1)]
    lines = numbered([*OWN, *send(9, last, 9), *READ, *theirs, poll(last, 9)])
    assert findings(tmp_path, lines, "C7")
    lines = with_application(lines, "h1", TOPIC, ["theirs", "same"])
    assert not findings(tmp_path, lines, "C1", "C2", "C4", "C7", "C10", "C11")


def test_a_damaged_value_of_ours_still_is_one(tmp_path: Path) -> None:
    lines = numbered([*OWN, *READ, poll(OURS[0].replace("producer", "prodicer"), 4)])
    (found,) = findings(tmp_path, with_application(lines, "h1", TOPIC), "C7")
    assert "nobody sent it" in found["detail"]


@pytest.mark.parametrize(("promised", "lost"), [(["theirs"], []), (["theirs", "gone"], ["gone"])])
def test_what_the_application_was_promised_has_to_be_there(
    tmp_path: Path, promised: list[str], lost: list[str]
) -> None:
    lines = numbered([*OWN, *READ, poll("theirs", 4)])
    found = findings(tmp_path, with_application(lines, "h1", TOPIC, promised), "C4")
    assert [finding["value"] for finding in found] == lost
    assert all("was acknowledged to the application and" in f["detail"] for f in found)


def test_other_topics_are_left_out() -> None:
    elsewhere = [{**line, "topic": "other"} for line in OWN]
    assert (
        with_application(numbered([*elsewhere, *OWN]), "h1", TOPIC)
        == numbered([*elsewhere, *OWN])[len(elsewhere) :]
    )


def test_what_the_application_did_not_process_is_found(tmp_path: Path) -> None:
    lines = with_application(numbered([*OWN, *READ]), "h1", TOPIC)
    whole = as_processed(lines, TOPIC, OURS)
    assert not findings(tmp_path / "whole", whole, "C4")
    (missing,) = findings(tmp_path / "less", as_processed(lines, TOPIC, OURS[1:]), "C4")
    assert missing["offset"] == 0


def test_where_a_missing_value_lies_is_known_though_the_application_did_not_tell(
    tmp_path: Path,
) -> None:
    read = numbered([poll("a", 7, None, 2), poll("b", 8, None, 2)])
    lines = with_application(read, "h1", TOPIC, ["a", "b"])
    (missing,) = findings(tmp_path, as_processed(lines, TOPIC, ["b"]), "C4")
    assert (missing["value"], missing["partition"], missing["offset"]) == ("a", 2, 7)


LETTERS = numbered([poll(value, n) for n, value in enumerate("abcdef")])


def turns(processed: str, read: list[Line] = LETTERS) -> list[str]:
    lines = with_application(read, "h1", TOPIC, list(processed))
    return [turn.story for turn in out_of_turn(lines, TOPIC, list(processed))]


def test_what_was_processed_once_and_in_order_tells_nothing() -> None:
    assert turns("abcdef") == turns("acf") == turns("") == []
    beside = numbered([poll("x", 0, None, 1), poll("y", 1, None, 1)])
    assert turns("axbycdef", LETTERS + beside) == turns("xyabcdef", LETTERS + beside) == []


@pytest.mark.parametrize(
    ("processed", "told"),
    [
        ("aab", "record 0 of orders-0 (a) was processed twice by the application: as number 1 and"
         " as number 2 of 3, with nothing in between (1 of 2 values)"),
        ("abcabd", "record 0 of orders-0 (a) was processed twice by the application: as number 1"
         " and as number 4 of 6, with b and c in between (2 of 4 values)"),
        ("abcdab", "record 0 of orders-0 (a) was processed twice by the application: as number 1"
         " and as number 5 of 6, with 3 others, from b to d, in between (2 of 4 values)"),
        ("abbb", "record 1 of orders-0 (b) was processed 3 times by the application: as number 2"
         " and as number 3 of 4, with nothing in between (1 of 2 values)"),
        ("acb", "record 1 of orders-0 (b) was processed by the application as number 3, after"
         " record 2 of orders-0 (c), its number 2"),
    ],
)  # fmt: skip
def test_what_the_application_processed_twice_or_late_is_told(processed: str, told: str) -> None:
    assert turns(processed)[0] == told


def test_equal_values_count_as_often_as_the_topic_has_them() -> None:
    two = numbered([poll("a", 0), poll("b", 1), poll("a", 0, None, 1)])
    assert turns("aab", two) == turns("aba", two) == []
    assert "(a) was processed twice" in turns("aaab", two)[0]


def test_equal_values_are_all_processed(tmp_path: Path) -> None:
    two = numbered([poll("a", 0), poll("a", 0, None, 1)])
    lines = with_application(two, "h1", TOPIC, ["a", "a"])
    assert not findings(tmp_path / "both", as_processed(lines, TOPIC, ["a", "a"]), "C4")
    assert len(findings(tmp_path / "one", as_processed(lines, TOPIC, ["a"]), "C4")) == 1


SECOND = 1_000_000_000


def at_partition(partition: int, lines: list[Line]) -> list[Line]:
    return [{**line, "partition": partition} for line in lines]


def test_a_partition_that_waits_is_not_hidden_by_those_that_are_served() -> None:
    """Three partitions in turn, one record a second each; the leader of 1 is cut off for 6 s."""
    lines = []
    for n in range(10):
        for partition in range(3):
            op, at = 100 * n + 10 * partition, n * SECOND
            begun, answered = at_partition(partition, send(op, f"v{n}", n, t_ns=at))
            if partition == 1 and 2 <= n < 8:
                answered["t_ns"] = 8 * SECOND + op
            lines += [begun, answered]
    waits = {wait.partition: round(wait.longest_s, 3) for wait in longest_waits(lines, TOPIC)}
    assert waits == {0: 0.0, 1: 6.0, 2: 0.0}


def test_the_longest_wait_is_a_producers() -> None:
    first = [line for n in range(3) for line in send(n, f"a{n}", n, t_ns=n * SECOND)]
    later = [
        {**line, "process": "producer-2-0", "t_ns": line["t_ns"] + 60 * SECOND} for line in first
    ]
    assert longest_waits([*first, *later], TOPIC) == [Wait(0, 1e-9, 62 * SECOND + 2, 6)]


def test_a_wait_without_an_end_counts() -> None:
    unanswered = send(9, "b", None, t_ns=7 * SECOND)
    last = at_partition(1, send(10, "c", 0, t_ns=9 * SECOND))
    first, second = longest_waits([*send(0, "a", 0), *unanswered, *last], TOPIC)
    assert first.longest_s == pytest.approx(2.0)
    assert (second.longest_s, second.acknowledged) == (1e-9, 1)
    still, _ = longest_waits([*unanswered, *last], TOPIC, ["producer-1"], 60 * SECOND)
    assert still.longest_s == pytest.approx(53.0)
    assert longest_waits([], TOPIC, ["producer-1"], SECOND) == []


def test_a_refusal_ends_no_wait() -> None:
    refused = [{**line, "type": "fail"} for line in send(1, "a", 0, t_ns=SECOND)[1:]]
    begun = send(1, "a", None, t_ns=SECOND)
    (wait,) = longest_waits([*begun, *refused, *send(2, "b", 0, t_ns=5 * SECOND)], TOPIC)
    assert wait.longest_s == pytest.approx(4.0)
