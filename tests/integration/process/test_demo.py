"""The whole demo: real clients, faults, a verdict; on Highwater's brokers, on Apache Kafka's, and
in containers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import guarded, picture

SVG = Path(__file__).parents[3] / "docs" / "demo.svg"
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
SEEN = (
    "not_leader",
    "leader_changes",
    "isr_shrinks",
    "isr_expands",
    "truncated_bytes",
    "hw_below_leo_at_leader_death",
    "controller_moves",
)


OF_TRANSACTIONS = ("T3", "T4", "T5", "T7")
OF_GROUPS = ("G2", "G3", "G4")


def demo(out: Path, *options: str) -> dict[str, Any]:
    """The verdict of a demo that exited with 0, and the process id that it had."""
    command = [sys.executable, "-I", guarded.__file__, "demo", f"--out={out}", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stdout, stderr = process.communicate()
    said = stdout[-4000:] + stderr[-4000:]
    told = out / "verdict.json"
    verdict: dict[str, Any] = json.loads(told.read_text()) if told.exists() else {}
    assert process.returncode == 0, f"{verdict.get('notes')}\n{verdict.get('faults')}\n{said}"
    assert "verdict   valid" in stdout
    assert_pictured(stderr + stdout)
    return {**verdict, "pid": process.pid}


def assert_pictured(output: str) -> None:
    """The README's picture shows the words of today: else `scripts/picture` makes it again."""
    shown = re.sub(r"\s+", " ", picture.text_of(SVG.read_text()))
    header, *checks = picture.table(output)
    assert " ".join(header) in shown
    names = {id_: name for id_, name, *_ in checks}
    ids = re.findall(r"\b([CTGLR]\d+) (\w+)", shown)
    assert len(ids) >= picture.SHOWN_CHECKS
    assert [id_ for id_, word in ids if not names.get(id_, "").startswith(word)] == []
    assert len(list(picture.told(output))) > 10


def check(verdict: dict[str, Any], runtime: str) -> None:
    assert verdict["verdict"] == "valid"
    assert verdict["runtime"] == runtime
    assert {name: verdict["seen"][name] for name in SEEN if verdict["seen"][name] <= 0} == {}
    assert verdict["expected_losses"] > 0
    assert all(fault["effect"] for fault in verdict["faults"])


def test_demo_on_processes(tmp_path: Path) -> None:
    """With transactions and consumer groups beside the writers."""
    out = tmp_path / "run"
    options = ("--seed=7", "--duration=25", "--runtime=process", "--engine=duckdb")
    verdict = demo(out, *options, "--workload=transactions", "--workload=groups")
    check(verdict, "process")
    assert verdict["operations"]["acked"] >= 3000
    for name in (*OF_TRANSACTIONS, *OF_GROUPS):
        found = verdict["checks"][name]
        assert found["status"] == "passed", found
        assert found["examined"] > 0, f"{name} had nothing to look at"
    assert (out / "report.html").stat().st_size > 10_000
    assert not list(out.glob("cluster/broker-*/data")), "a valid run keeps no data without --keep"


def test_a_run_with_security(tmp_path: Path) -> None:
    """Every client comes over TLS, as a user with few rights, through kills and cut links."""
    schedule = tmp_path / "faults.json"
    entries: list[dict[str, Any]] = [
        {"at": 2, "name": "kill", "target": "leader of safe-0", "for": 1},
        {"after": 2, "name": "cut", "from": "leader of safe-1", "to": "clients", "for": 1.5},
        {"after": 2, "name": "reset_peer", "from": "leader of safe-2", "to": "clients"},
        {"after": 1, "name": "move_controller", "how": "kill"},
        {"after": 3, "name": "lose_unreplicated", "seconds": 0.8},
    ]
    schedule.write_text(json.dumps(entries))
    out = tmp_path / "run"
    options = ("--secure", "--seed=3", "--duration=12", "--engine=duckdb", f"--faults={schedule}")
    verdict = demo(out, *options, "--workload=transactions", "--workload=groups")
    assert all(fault["effect"] for fault in verdict["faults"]), verdict["faults"]
    for name in ("C3", "C13", "T3", "G3"):  # of clients of librdkafka, our own, and kafka-python
        assert verdict["checks"][name]["examined"] > 0, name
    said = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    acked = {line["process"] for line in said if line["f"] == "send" and line["type"] == "ok"}
    kinds = ("producer-kafka-python", "producer-confluent-kafka", "producer-highwater", "teller")
    assert [k for k in kinds if not any(name.startswith(k) for name in acked)] == []
    passwords = json.loads((out / "cluster" / "secure" / "users.json").read_text())
    told = [p for p in out.glob("*") if p.is_file()]
    assert not [p for p in told if passwords["alice"] in p.read_text(errors="replace")]


@pytest.mark.compose
def test_demo_on_containers(tmp_path: Path) -> None:
    options = ("--seed=7", "--duration=30", "--runtime=compose", "--engine=duckdb")
    verdict = demo(tmp_path / "run", *options)
    check(verdict, "compose")
    left = subprocess.run(  # of this process: other workers run clusters, too
        ["docker", "ps", "-aq", "--filter", f"name=highwater-run-{verdict['pid']}-"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert left.stdout.strip() == ""


@pytest.mark.apache
@pytest.mark.rare  # as `scripts/long targets`; test_targets has a run on Apache Kafka for CI
def test_apache_kafka_passes_the_same_checks(tmp_path: Path) -> None:
    """The oracle: a check that Apache Kafka does not pass is wrong, or a finding."""
    from highwater.cluster.processes import apache

    options = ("--seed=3", "--duration=30", "--engine=duckdb", f"--apache={apache.home()}")
    check(demo(tmp_path / "run", *options), "process")
