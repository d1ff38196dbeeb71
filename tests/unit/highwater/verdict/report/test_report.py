"""The page of a run: whole, self-contained, and true to the folder."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from highwater.cli.report import report as report_command
from highwater.cli.verify import verify as verify_command
from highwater.verdict import report, runner
from highwater.verdict.report.data import gather
from highwater.verdict.tables import RunUnreadable
from tests.planted.stories import PLANTS
from tests.planted.story import write


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with losses of both kinds, faults, and a witness."""
    folder = tmp_path_factory.mktemp("judged")
    names = ("lost-at-the-end", "expected-loss-of-acks-1", "clean")
    write(folder, [p for p in PLANTS if p.name in names])
    faults = [
        {"name": "kill", "target": "broker-1", "t_ns": 100, "t": 0.0, "effect": "leader moved"},
        {"name": "hold", "target": "<b>&", "t_ns": 400, "t": 0.0, "effect": None},
    ]
    leader = {"what": "leader", "topic": "safe", "partition": 0}
    witness = [
        {"t_ns": 0, **leader, "leader": 1, "leader_epoch": 0, "isr": [1, 2, 3]},
        {"t_ns": 200, **leader, "what": "isr", "leader": 1, "leader_epoch": 0, "isr": [1, 2]},
        {"t_ns": 500, **leader, "leader": 2, "leader_epoch": 1, "isr": [2]},
        {"t_ns": 0, "what": "controller", "controller": 1},
        {"t_ns": 500, "what": "controller", "controller": None},
        {"t_ns": 0, "what": "broker", "brokers": [1, 2]},
        {"t_ns": 500, "what": "broker", "brokers": [2]},
    ]
    processes = [
        {"t_ns": 0, "member": "zookeeper", "state": "up"},
        {"t_ns": 0, "member": "broker-1", "state": "up"},
        {"t_ns": 110, "member": "broker-1", "state": "down"},
        {"t_ns": 300, "member": "broker-1", "state": "up"},
        {"t_ns": 0, "member": "broker-2", "state": "up"},
        {"t_ns": 600, "member": "broker-2", "state": "paused"},
        {"t_ns": 700, "member": "broker-2", "state": "up"},
    ]
    files = {"faults": faults, "witness": witness, "cluster/processes": processes}
    for name, lines in files.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    runner.run(folder, "duckdb", lambda line: None)
    return folder


@pytest.fixture
def run(judged: Path, tmp_path: Path) -> Path:
    return shutil.copytree(judged, tmp_path / "run")


@pytest.mark.thorough
def test_the_page_needs_nothing_else(run: Path) -> None:
    page = report.write(run).read_text()
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|<script", page)
    assert page.startswith("<!DOCTYPE html>")


def test_the_page_tells_verdict_checks_faults_and_losses(run: Path) -> None:
    page = report.write(run).read_text()
    assert '<span class="word invalid">invalid</span>' in page
    assert "acknowledged to t01-lost-at-the-end/producer-0" in page or "lost-at-the-end" in page
    assert "leader moved" in page
    assert "none was seen" in page
    assert "&lt;b&gt;&amp;" in page
    assert "LOST: t" in page
    assert "expected loss: t" in page


def test_the_timeline_is_well_formed(run: Path) -> None:
    page = report.write(run).read_text()
    svg = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert svg is not None
    root = ET.fromstring(svg.group(0))
    kinds = {e.get("class") for e in root.iter()}
    assert {"acked", "unsafe", "fault", "fault unseen", "loss", "expected-loss"} <= kinds
    assert {"broker-0", "broker-1", "isr-0", "isr-1", "isr-2", "nobody"} <= kinds
    assert {"up", "paused", "down", "registered", "unregistered"} <= kinds


def test_it_says_how_to_run_it_again(run: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"again": "highwater chaos --seed=7"}))
    page = report.write(run).read_text()
    assert "run it again: <code>highwater chaos --seed=7</code>" in page


def test_no_label_of_a_fault_is_cut_and_those_without_room_are_counted(run: Path) -> None:
    name = "hold Fetch response broker-3->broker-1"
    faults = [{"name": name, "target": "", "t_ns": 10 * n, "t": 0.0} for n in range(30)]
    lines = "".join(json.dumps(fault) + "\n" for fault in faults)
    (run / "faults.jsonl").write_text(lines)
    page = report.write(run).read_text().partition("</svg>")[0]
    labels = re.findall(r'<text class="fault-label"[^>]*>([^<]+)<', page)
    assert set(labels) == {name.replace(">", "&gt;")}
    assert f"{30 - len(labels)} more in the table" in page


def test_states_last_until_the_next_line_of_the_witness(run: Path) -> None:
    data = gather(run)
    first, second = data.leaders["safe-0"]
    assert (first.state, second.state) == (1, 2)
    assert first.end == second.begin
    assert second.end == data.seconds
    assert [s.state for s in data.isrs["safe-0"]] == [[1, 2, 3], [1, 2], [2]]
    assert [s.state for s in data.registrations["broker-1"]] == [True, False]
    assert [s.state for s in data.registrations["broker-2"]] == [True]


@pytest.mark.thorough
def test_a_lane_is_red_for_as_long_as_the_process_was_down(run: Path) -> None:
    """The registration, which outlives it, stands beside it under a name of its own."""
    data = gather(run)
    first = json.loads((run / "history.jsonl").read_text().splitlines()[0])["t_ns"]
    up, down, again = data.processes["broker-1"]
    assert (up.state, down.state, again.state) == ("up", "down", "up")
    assert (down.begin, down.end) == ((110 - first) / 1e9, (300 - first) / 1e9)
    assert data.registrations["broker-1"][0].end > down.end, "the znode went later than the process"
    page = report.write(run).read_text().partition("</svg>")[0]
    labels = re.findall(r'<text class="label"[^>]*>([^<]*)</text>', page)
    lanes = [label for label in labels if "process" in label or "ZooKeeper" in label]
    broker = ["broker-1 process", "in ZooKeeper", "broker-2 process", "in ZooKeeper"]
    assert lanes == ["zookeeper process", *broker]


@pytest.mark.thorough
def test_one_sentence_stands_on_top(run: Path) -> None:
    page = report.write(run).read_text()
    (sentence,) = re.findall(r'<p class="headline">(.*?)</p>', page)
    assert page.index("headline") < page.index("<svg")
    told = "and is in no read."
    assert sentence.startswith("record 6 of t")
    assert sentence.endswith(told)
    done = CliRunner().invoke(verify_command, [str(run), "--engine", "duckdb", "--no-report"])
    assert done.stdout.splitlines()[0] + "." == sentence


def test_rates_add_up_to_the_operations(run: Path) -> None:
    data = gather(run)
    rates, operations = data.rates, data.verdict["operations"]
    acked = (sum(rates.acked) + sum(rates.unsafe)) * rates.seconds
    assert round(acked) == operations["acked"]
    in_final = sum(
        '"phase": "final"' in line and '"f": "poll"' in line
        for line in (run / "history.jsonl").read_text().splitlines()
    )
    assert in_final > 0
    assert round(sum(rates.polled) * rates.seconds) == operations["polled"] - in_final


def test_a_run_without_a_verdict_is_refused_with_the_remedy(run: Path) -> None:
    (run / "verdict.json").unlink()
    with pytest.raises(RunUnreadable, match="run `highwater verify"):
        report.write(run)


@pytest.mark.thorough
def test_the_commands_print_and_exit_by_the_verdict(run: Path) -> None:
    cli = CliRunner()
    done = cli.invoke(
        verify_command, [str(run), "--engine", "duckdb", "--json", str(run / "out.json")]
    )
    assert done.exit_code == 1, done.output
    assert "unseen" in done.output
    assert "lost-at-the-end" in done.output
    assert json.loads((run / "out.json").read_text())["verdict"] == "invalid"
    (run / "report.html").unlink()
    done = cli.invoke(report_command, [str(run)])
    assert done.exit_code == 0
    assert done.output.strip() == str(run / "report.html")
    assert (run / "report.html").is_file()


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(verify_command, [str(tmp_path), "--engine", "duckdb"])
    assert done.exit_code == 3
    assert (
        done.output.strip()
        == f"highwater: {tmp_path} holds no history.jsonl: name the folder of a run"
    )
