"""The page of an application's run: what was fed, what came out, its copies and the faults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from highwater.cli.report import report as report_command
from highwater.verdict import report
from highwater.verdict.report.app_data import gather

SECOND = 1_000_000_000
HEADLINE = "record 7 of orders-0 is not in invoices; the application commits first"
ABOUT = {
    "run": "mine", "seed": 3, "runtime": "process, highwater", "command": "python <my> app.py",
    "copies": 2, "group": "app", "input": "orders", "output": "invoices", "match": "$.id",
    "demanded": "every input exactly once, within 60 s", "started": "", "versions": {},
}  # fmt: skip


def counted(at_s: int, sent: int, acknowledged: int, came: int, again: int) -> dict[str, Any]:
    line = {"t_ns": at_s * SECOND, "sent": sent, "acknowledged": acknowledged}
    return {**line, "came": came, "again": again}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    check = {
        "name": "missing in the pipeline", "status": "violated", "examined": 100, "violations": 1,
        "expected": 0, "counted": 0, "examples": ["id r1-7"],
    }  # fmt: skip
    verdict = {
        "verdict": "invalid", "headline": HEADLINE, "contract": "c", "isolation": "read_committed",
        "records": {"orders": 100, "invoices": 99}, "checks": {"K7": check},
        "notes": ["app ended by itself with code 1"], "engine": "duckdb", "version": "1",
        "seconds": 1.0,
    }  # fmt: skip
    (tmp_path / "app.json").write_text(json.dumps(ABOUT))
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    (tmp_path / "cluster").mkdir()
    faults = [
        {"name": "kill", "target": "app-2", "t_ns": 14 * SECOND, "effect": "ended by SIGKILL"},
        {"name": "pause", "target": "app", "t_ns": 15 * SECOND, "effect": None},
    ]
    place = {"what": "leader", "partition": 0, "isr": [1], "leader": 1}
    witness = [
        {"t_ns": 10 * SECOND, **place, "topic": topic} for topic in ("orders", "__consumer_offsets")
    ]
    lives = [
        {"t_ns": 9 * SECOND, "member": "broker-1", "state": "up"},
        {"t_ns": 9 * SECOND, "member": "zookeeper", "state": "up"},
        {"t_ns": 10 * SECOND, "member": "app-2", "state": "up"},
        {"t_ns": 10 * SECOND, "member": "app", "state": "up"},
        {"t_ns": 14 * SECOND, "member": "app-2", "state": "down"},
        {"t_ns": 15 * SECOND, "member": "app", "state": "paused"},
    ]
    traffic = [counted(10, 0, 0, 0, 0), counted(20, 100, 90, 60, 0), counted(30, 100, 95, 80, 15)]
    files = {"faults": faults, "witness": witness, "cluster/processes": lives, "traffic": traffic}
    for name, lines in files.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    return tmp_path


def test_the_page_tells_why_and_shows_copies_traffic_and_faults(run: Path) -> None:
    page = report.write(run).read_text()
    assert page.index(HEADLINE) < page.index("seed 3")
    assert "python &lt;my&gt; app.py" in page
    labels = re.findall(r'<text class="label"[^>]*>([^<]*)</text>', page)
    members = [label for label in labels if label.endswith("process")]
    assert members == ["zookeeper process", *(f"{m} process" for m in ("app", "app-2", "broker-1"))]
    assert "leader orders-0" in labels
    assert "leader __consumer_offsets-0" not in labels
    assert {"fed: 10 /s", "came out: 10 /s"} <= set(labels)
    assert "outputs/s in invoices that had come before" in page
    cards = dict(map(reversed, re.findall(r"<b>([^<]*)</b>([^<]*)</div>", page)))
    assert cards["sent to orders"] == "100"
    assert cards["of unknown outcome"] == "5"
    assert cards["came out in invoices"] == "80"
    assert cards["came out again"] == "15"
    assert "none was seen" in page
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|<script", page)


def test_rates_are_of_the_time_in_which_the_records_were_counted(run: Path) -> None:
    flow = gather(run).flow
    assert flow is not None
    assert sum(flow.acknowledged) * flow.seconds == pytest.approx(95)
    assert sum(flow.came) * flow.seconds == pytest.approx(80)
    first_half = sum(flow.came[: len(flow.came) // 2]) * flow.seconds
    assert first_half == pytest.approx(60, abs=1)
    assert sum(flow.again[: len(flow.again) // 2]) == 0


def test_a_run_without_a_verdict_is_told_so(run: Path) -> None:
    (run / "verdict.json").unlink()
    done = CliRunner().invoke(report_command, [str(run)])
    assert done.exit_code == 3
    assert "holds no verdict.json: the run did not come to its end" in done.output
