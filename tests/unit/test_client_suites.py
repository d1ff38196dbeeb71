"""The output of the clients' own test runners is read correctly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.suites.result import FAILED, PASSED, SKIPPED, NoResults, from_go, from_junit


def go(action: str, test: str = "", **more: object) -> str:
    return json.dumps(
        {"Action": action, "Package": "p", **({"Test": test} if test else {}), **more}
    )


def test_go_counts_tests_and_not_their_parts() -> None:
    lines = [
        go("run", "TestA"), go("pass", "TestA/part", Elapsed=1), go("pass", "TestA", Elapsed=2.5),
        go("output", "TestB/part", Output="what went wrong\n"), go("fail", "TestB/part"),
        go("fail", "TestB"), go("skip", "TestC"), go("fail"),
    ]  # fmt: skip
    found = from_go(lines)
    assert [(r.test, r.outcome) for r in found] == [
        ("TestA", PASSED),
        ("TestB", FAILED),
        ("TestC", SKIPPED),
    ]
    assert found[0].seconds == 2.5
    assert found[1].said == "what went wrong\n"


def test_a_go_test_that_never_ended_has_failed() -> None:
    (found,) = from_go([go("output", "TestA", Output="panic: time out\n"), go("fail")])
    assert (found.test, found.outcome) == ("TestA", FAILED)


def test_a_go_run_without_tests_is_no_success() -> None:
    with pytest.raises(NoResults, match="does not compile"):
        from_go(["p.go:1: does not compile", go("fail")])


def test_junit(tmp_path: Path) -> None:
    file = tmp_path / "r.xml"
    file.write_text(
        '<testsuites><testsuite><testcase classname="a.B" name="one" time="1.5"/>'
        '<testcase classname="a.B" name="two"><failure>no</failure></testcase>'
        '<testcase classname="a.B" name="three"><error message="setup"/></testcase>'
        '<testcase classname="a.B" name="four"><skipped/></testcase></testsuite></testsuites>'
    )
    found = [(r.test, r.outcome, r.said) for r in from_junit(file)]
    assert found == [
        ("B::one", PASSED, ""),
        ("B::two", FAILED, "no"),
        ("B::three", FAILED, "setup"),
        ("B::four", SKIPPED, ""),
    ]
    file.write_text("<testsuites/>")
    with pytest.raises(NoResults):
        from_junit(file)
