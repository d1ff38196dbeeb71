"""The story of a run's first anomaly: its record's acts, what the logs hold, and its picture."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from highwater.verdict import report, runner
from highwater.verdict.report.anomaly import Act, Anomaly
from highwater.verdict.report.anomaly_picture import BrokenAxis
from highwater.verdict.report.data import ReportData, gather
from tests.planted.stories import PLANTS
from tests.planted.story import write

SEGMENTS = [(1, 6, 1, "lost"), (2, 6, 2, "instead"), (3, 6, 2, "instead"), (1, 5, 1, "5")]


def judged(folder: Path, plant: str) -> Path:
    write(folder, [p for p in PLANTS if p.name == plant])
    runner.run(folder, "duckdb", lambda line: None)
    return folder


def story_of(data: ReportData) -> Anomaly:
    assert data.anomaly is not None
    return data.anomaly


@pytest.mark.parametrize(
    ("plant", "check", "told"),
    [
        ("lost-at-the-end", "C4", "sends the record: acknowledged at"),
        ("lost-and-replaced", "C1", "acknowledged at 6"),
        ("two-locks", "S3", "acquires 5"),
        ("failed-but-read", "C6", "sends the record: refused"),
        ("a-commit-went-back", "G4", "commits"),
        ("stale-end", "C13", "lists offset"),
    ],
)
def test_the_acts_about_its_record_are_told(
    tmp_path: Path, plant: str, check: str, told: str
) -> None:
    story = story_of(gather(judged(tmp_path, plant)))
    assert story.check == check
    own = [act.text for act in story.acts if act.own]
    assert any(told in text for text in own), own
    assert story.extent is not None


@pytest.mark.parametrize("plant", [p.name for p in PLANTS if p.violations][::4])
def test_each_anomaly_has_a_page_without_values(tmp_path: Path, plant: str) -> None:
    folder = judged(tmp_path, plant)
    page = report.write(folder).read_text()
    assert "<h2>The first anomaly: " in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(svg)
        lines = (folder / "history.jsonl").read_text().splitlines()
        values = {json.loads(line).get("value") for line in lines}
        assert not [v for v in values if v and f">{v}" in svg.rpartition("aria-label")[2]]


def test_what_each_brokers_log_holds_there(tmp_path: Path) -> None:
    folder = judged(tmp_path, "lost-and-replaced")
    topic = story_of(gather(folder)).partition.rpartition("-")[0]
    lines = [
        {"broker": broker, "topic": topic, "partition": 0, "offset": offset, "leader_epoch": epoch,
         "value": f"{topic}|{value}"}
        for broker, offset, epoch, value in SEGMENTS
    ]  # fmt: skip
    (folder / "cluster").mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "cluster" / "records.jsonl").write_text(text)
    found = [(h.offset, h.what, h.brokers) for h in story_of(gather(folder)).held]
    assert (5, "another record, epoch 1", "1") in found
    assert sorted((offset, brokers) for offset, _, brokers in found) == [
        (5, "1"), (6, "1"), (6, "2, 3"),
    ]  # fmt: skip
    assert "<td>2, 3</td>" in report.write(folder).read_text()


@pytest.mark.parametrize(
    ("end", "told"),
    [("fail", ": refused"), ("info", ": outcome unknown"), ("", ": outcome unknown")],
)
def test_an_act_that_did_not_end_well_says_so(tmp_path: Path, end: str, told: str) -> None:
    folder = judged(tmp_path, "two-locks")
    file = folder / "history.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lock = next(line for line in lines if line["f"] == "acquire" and line.get("offset") == 5)
    names = ("topic", "partition", "offset", "process", "client", "run", "seed")
    said = {name: lock[name] for name in names if name in lock}
    for number, kind in enumerate(filter(None, ("invoke", end))):
        index = len(lines) + number
        line = {**said, "f": "acknowledge", "type": kind, "op": 9999, "t_ns": 500, "index": index}
        lines.append({**line, "which": "release"})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    acts = [act for act in story_of(gather(folder)).acts if "(release)" in act.text]
    assert [act.outcome for act in acts] == [end or "info"]
    assert acts[0].text.endswith(told)


def test_a_valid_run_has_none(tmp_path: Path) -> None:
    folder = judged(tmp_path, "clean")
    assert gather(folder).anomaly is None
    assert "The first anomaly" not in report.write(folder).read_text()


def test_long_pauses_are_cut_short_and_nothing_changes_its_order() -> None:
    axis = BrokenAxis([1.0, 1.1, 1.2, 1.25, 60.0, 60.1])
    places = [axis.x(moment) for moment in axis.moments]
    assert places == sorted(places)
    assert [round(length, 2) for _, length in axis.cuts()] == [58.75]
    assert axis.x(30.0) > axis.x(1.25)
    assert axis.x(0.0) == places[0]
    assert axis.x(99.0) == places[-1]
    assert places[4] - places[3] < 0.7 * (places[-1] - places[0])


def test_its_place_in_the_run_is_without_the_full_read_at_the_end() -> None:
    acts = [
        Act("producer", "send", 3.0, 3.1, "ok", "", own=True),
        Act("reader", "poll", 2.0, 2.0, "ok", "", own=False),
        Act("final", "poll", 40.0, 40.0, "ok", "", own=True, final=True),
    ]
    assert Anomaly("C4", "unseen", "", "t-0", acts).extent == (3.0, 3.1)
    assert Anomaly("C4", "unseen", "", "t-0", acts[2:]).extent == (40.0, 40.0)
    assert Anomaly("L4", "void", "", "").extent is None
