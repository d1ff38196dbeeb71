"""The results of a suite's own runner: Go's `test -json`, or pytest's JUnit file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_GO = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}


@dataclass(frozen=True, slots=True)
class Result:
    test: str
    outcome: str
    seconds: float
    said: str = ""
    """The end of its output, if it failed."""


class NoResults(Exception):
    """The runner ended without naming a test; the message is its last output."""


def from_go(lines: Iterable[str]) -> list[Result]:
    """Top-level tests; one that never ended (a panic, a time-out) has failed."""
    printed: dict[str, list[str]] = {}
    by_part: dict[str, list[str]] = {}
    failed_parts: dict[str, list[str]] = {}
    results: dict[str, Result] = {}
    last: list[str] = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            last = [*last[-20:], line.strip()]
            continue
        test = event.get("Test", "").split("/")[0]
        if event["Action"] in ("output", "build-output"):
            printed.setdefault(test, []).append(event["Output"])
            by_part.setdefault(event.get("Test", ""), []).append(event["Output"])
        elif "/" in event.get("Test", "") and event["Action"] == "fail":
            failed_parts.setdefault(test, []).extend(by_part.get(event["Test"], [])[-30:])
        elif test and "/" not in event["Test"] and event["Action"] in _GO:
            outcome = _GO[event["Action"]]
            told = failed_parts.get(test) or printed.get(test, [])[-30:]
            said = "".join(told) if outcome == FAILED else ""
            results[test] = Result(test, outcome, event.get("Elapsed", 0.0), said)
    for test, said_lines in printed.items():
        if test and test not in results:
            results[test] = Result(test, FAILED, 0.0, "".join(said_lines[-30:]))
    if not results:
        raise NoResults("\n".join([*last, *printed.get("", [])[-20:]]))
    return list(results.values())


def from_junit(file: Path) -> list[Result]:
    """pytest's --junitxml; the same test in several classes is told apart by the class's name."""
    results = []
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        where = case.get("classname", "").rpartition(".")[2]
        outcome, said = PASSED, ""
        for child in case:
            if child.tag in ("failure", "error"):
                outcome, said = FAILED, (child.text or child.get("message") or "")[-2000:]
            elif child.tag == "skipped":
                outcome = SKIPPED
        results.append(
            Result(f"{where}::{case.get('name')}", outcome, float(case.get("time", 0)), said)
        )
    if not results:
        raise NoResults(f"{file} names no test")
    return results
