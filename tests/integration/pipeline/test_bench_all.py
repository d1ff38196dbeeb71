"""`highwater bench all` against Apache Kafka, with tiny sizes: the command, not the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.apache,
    pytest.mark.slow,
    pytest.mark.rare,
    pytest.mark.timeout(300),
]
COMMAND = [sys.executable, "-I", "-m", "highwater.cli.main", "bench", "all", "--against", "apache"]


def _words(table: str, line: int) -> list[str]:
    return table.splitlines()[line].split()


def test_two_rows_in_turn_are_measured_once_and_shown(tmp_path: Path) -> None:
    file, shown = tmp_path / "all.json", tmp_path / "all.html"
    words = ["--quick", f"--json={file}", f"--page={shown}", f"--dir={tmp_path}"]
    rows = ["--row=one-in-flight", "--row=metadata-1", "--row=restart"]

    def bench(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words, *more], capture_output=True, text=True, check=False
        )

    first = bench(*rows)
    assert first.returncode == 0, first.stderr
    results = json.loads(file.read_text())["results"]
    for line in ("one-in-flight-p50", "one-in-flight-p99"):
        ours, theirs = results["one-in-flight"]["samples"][line]
        assert len(ours) == len(theirs) == 2
        assert min(*ours, *theirs) > 0
    assert min(map(min, results["metadata-1"]["samples"]["metadata-1"])) > 10
    assert min(map(min, results["restart"]["samples"]["restart"])) > 0
    second = bench(*rows[:2])
    assert second.returncode == 0, second.stderr
    assert [_words(second.stdout, n) for n in (1, 2, 3)] == [
        _words(first.stdout, n) for n in (1, 2, 3)
    ]
    assert second.stderr.count("kept from") == 2
    assert "Highwater: starts" not in second.stderr
    assert shown.read_text().count('class="pair"') == 7
    assert not list(tmp_path.glob("highwater-bench-*"))


def test_a_row_that_does_not_exist_is_named(tmp_path: Path) -> None:
    words = [*COMMAND, "--row=nothing", f"--json={tmp_path / 'all.json'}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'nothing' is not one of 'one-in-flight', 'produce-16k'" in done.stderr
