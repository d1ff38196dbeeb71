"""The sentence on top of a report: the outcome of the run, or why it is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from highwater.verdict import runner
from highwater.verdict.headline import story
from tests.planted import stories
from tests.planted.stories import PLANTS
from tests.planted.story import Plant, Story, write

pytestmark = pytest.mark.thorough

BY_NAME = {plant.name: plant for plant in PLANTS}


def headline(run: Path, *plants: Plant, **info: Any) -> str:
    write(run, plants)
    file = run / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | info))
    verdict = runner.run(run, "duckdb", lambda line: None)
    assert json.loads((run / "verdict.json").read_text())["headline"] == verdict.headline
    return verdict.headline


def faulty(s: Story) -> None:
    stories.sound(s)
    for name in ("kill", "start", "stand_still", "go_on", "wait", "cut"):
        s.fault(name, "was seen", s.now)
    stories.finish(s)


def test_what_held(tmp_path: Path) -> None:
    plant = Plant("faulty", frozenset(), frozenset(), faulty, "")
    told = headline(tmp_path, plant)
    assert told == "6 writes acknowledged, 3 faults, nothing lost, longest gap 0.0 s"


def test_what_may_be_lost_is_told(tmp_path: Path) -> None:
    told = headline(tmp_path, BY_NAME["expected-loss-of-acks-1"], BY_NAME["clean"])
    assert ", nothing lost but 1 record of acks=1, as Kafka allows, " in told


def test_the_story_of_a_lost_record(tmp_path: Path) -> None:
    told = headline(tmp_path, BY_NAME["lost-in-the-middle"])
    topic = "t00-lost-in-the-middle"
    assert told == (
        f"record 6 of {topic}-0 was acknowledged to {topic}/producer-0 and never read, though 7 was"
    )


def test_a_loss_that_is_allowed_is_not_the_anomaly(tmp_path: Path) -> None:
    """Both are findings of C4, and the allowed one comes first."""
    told = headline(tmp_path, BY_NAME["expected-loss-of-acks-1"], BY_NAME["lost-at-the-end"])
    assert " of t01-lost-at-the-end-0 was acknowledged to " in told


def test_a_cluster_that_stayed_broken(tmp_path: Path) -> None:
    told = headline(tmp_path, BY_NAME["clean"], problems=["broker-2 ended with code 1: no space"])
    assert told == "broker-2 ended with code 1: no space"


def test_why_a_run_is_void(tmp_path: Path) -> None:
    told = headline(tmp_path, BY_NAME["clean"], finished=False, planned_faults=2)
    assert told == (
        "this run proves nothing: the run was interrupted before everything was read back"
        " (and 1 more)"
    )


def test_why_a_run_is_undecided(tmp_path: Path) -> None:
    told = headline(tmp_path, BY_NAME["clean-transfers"], final_read=False)
    assert told.startswith("this run decides nothing: no full read at the end reached all offsets")


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        ({"offset": 5, "value": "v", "detail": "holds a and b"}, "record 5 of t-0 holds a and b"),
        ({"offset": 5, "value": "v", "detail": "p read it"}, "record 5 of t-0: p read it"),
        ({"value": "v", "detail": "is torn"}, "record v of t-0 is torn"),
        ({"partition": None, "detail": "the accounts sum to 3"}, "t: the accounts sum to 3"),
        ({"topic": None, "detail": "nobody came"}, "nobody came"),
    ],
)
def test_a_story_begins_with_its_subject(finding: dict[str, Any], said: str) -> None:
    nothing = {"topic": "t", "partition": 0, "offset": None, "value": None}
    assert story({**nothing, **finding}) == said


def waits(s: Story) -> None:
    """A write of 3 ms before the first fault, one of 2 s during it, one of 1 s long after it."""
    for value, took, begins in (("a", 3, 0), ("b", 2000, 10_000), ("c", 1000, 30_000)):
        s.now = begins * 1_000_000
        sent = s.invoke("p", value)
        s.now = (begins + took) * 1_000_000
        s.end(sent, "ok", "abc".index(value))
        s.store(value, "abc".index(value))
    for name, at_s in (("kill", 9), ("start", 13)):
        s.fault(name, "was seen", at_s * 1_000_000_000)
    stories.finish(s)


def test_how_long_a_write_takes_while_no_fault_is_near(tmp_path: Path) -> None:
    headline(tmp_path, Plant("waits", frozenset(), frozenset(), waits, ""))
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["longest_while_well_ms"] in range(999, 1002), "and not the 2 s during the fault"
