"""Fault files: some are understood, others refused with the place of the error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.schedule_form import load, parse


def test_a_file_becomes_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text(
        json.dumps(
            [
                {"at": 3, "name": "kill", "target": "leader of safe-0", "for": 4, "as": "L"},
                {"after": 1, "name": "hold", "api": "setData", "from": "$L", "to": "zookeeper"},
            ]
        )
    )
    kill, hold = load(path)
    assert kill == Fault("kill", "leader of safe-0", at=3, lasts=4, label="L")
    assert hold.after == 1
    assert hold.params == {"api": "setData", "from": "$L", "to": "zookeeper"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"name": "kill"}, "a list of faults"),
        ([{"name": "explode"}], "fault 1: no verb 'explode'"),
        ([{"name": "kill", "taget": "1"}], "unknown field 'taget'"),
        ([{"name": "kill", "at": -1}], "at must be"),
        ([{"class": "org.apache.kafka.trogdor.fault.DiskFault"}], "has no equal"),
    ],
)
def test_what_is_wrong_is_named(raw: Any, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        parse(raw)


def test_yaml_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("- {at: 3, name: kill, target: leader of safe-0, for: 4, as: L}\n")
    assert load(path) == [Fault("kill", "leader of safe-0", at=3, lasts=4, label="L")]


@pytest.mark.parametrize(("ending", "kind"), [("json", "JSON"), ("yaml", "YAML")])
def test_a_damaged_file_is_named(tmp_path: Path, ending: str, kind: str) -> None:
    path = tmp_path / f"faults.{ending}"
    path.write_text("[{")
    with pytest.raises(ScheduleError, match=rf"faults\.{ending} is not {kind}: .*line [12]"):
        load(path)


def test_trogdor_names() -> None:
    cut = {
        "class": "org.apache.kafka.trogdor.fault.NetworkPartitionFaultSpec",
        "startMs": 1000,
        "durationMs": 2500,
        "partitions": [["node1", "node2"], ["node3"]],
    }
    faults = parse([cut, {"class": "ProcessStopFaultSpec", "nodeNames": ["node2"]}])
    assert [f.params for f in faults[:2]] == [
        {"from": "broker-1", "to": "broker-3"},
        {"from": "broker-2", "to": "broker-3"},
    ]
    assert (faults[0].at, faults[0].lasts) == (1.0, 2.5)
    assert (faults[2].name, faults[2].target) == ("pause", "broker-2")
