"""`highwater bench cpu`, `flat`, `control` and `share-failover`, tiny: not the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import guarded

pytestmark = [pytest.mark.integration, pytest.mark.rare, pytest.mark.timeout(180)]
COMMAND = [sys.executable, "-I", guarded.__file__, "bench"]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_where_the_cpu_time_of_a_batch_goes(tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    done = bench("cpu", "--load=one", "--load=16k", "--seconds=2", f"--json={file}")
    one, batches = json.loads(file.read_text())["loads"]
    assert one["batch_us"] > 10
    assert batches["mb_ms"] > 0.1
    for found in (one, batches):
        assert {"receive and send", "replicate", "write", "event loop"} <= found["samples"].keys()
        assert sum(found["samples"].values()) > 20
        assert found["samples"].get("the rest", 0) < 0.1 * sum(found["samples"].values())
    assert "| replicate |" in done.stdout


def test_the_cost_of_a_request_at_each_step(tmp_path: Path) -> None:
    page = tmp_path / "flat.html"
    done = bench("flat", "--quick", f"--page={page}")
    assert done.stdout.count(": last step to first ") == 3
    assert page.read_text().count("<polyline") == 6


def test_many_partitions_and_many_isrs(tmp_path: Path) -> None:
    file = tmp_path / "control.json"
    sizes = ["--create=20", "--create=30", "--failover=20"]
    done = bench("control", *sizes, f"--json={file}")
    rows = {row["what"]: row for row in json.loads(file.read_text())["rows"]}
    assert "controller and leaders killed, 20 partitions, s" in rows
    assert sum(what.startswith(("20 ", "30 ")) for what in rows) == 6
    (isrs,) = [row for what, row in rows.items() if "ISRs changed" in what]
    assert len(isrs["samples"]["ours"]) == 6
    assert all(row["ours"] > 1 for what, row in rows.items() if what.endswith("ms"))
    assert "Highwater: 30 partitions created" in done.stderr


def test_when_a_share_group_gets_records_again(tmp_path: Path) -> None:
    file = tmp_path / "share.json"
    words = ["--members=2", "--partitions=3", "--rounds=1", f"--json={file}"]
    done = bench("share-failover", *words)
    rows = json.loads(file.read_text())["rows"]
    assert [row["what"].split()[:2] for row in rows] == [["a", "partition's"], ["the", "share"]]
    assert all(0 < row["samples"]["ours"][0] < 60 for row in rows)
    assert "round 1 of 1: Highwater leader" in done.stderr
