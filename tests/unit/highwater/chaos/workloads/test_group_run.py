"""Members' files become one history, and so do the lines of Java's members."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.chaos.workloads import group_run
from highwater.chaos.workloads.group_member import Member, MemberHistory, positions
from highwater.chaos.workloads.group_run import GroupRun, _write_down, collect
from highwater.chaos.workloads.run_groups import _leave
from highwater.cluster.client_files import Way
from tests.waiting import eventually


def member(folder: Path, number: int = 1, client: str = "kafka-python") -> Member:
    name = f"g-{number}"
    out = str(folder / f"{name}.jsonl")
    return Member(
        client=client, process=name, bootstrap="localhost:1", group="g", topic="t", out=out
    )


def lines_of(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_positions_are_one_after_the_last_record() -> None:
    assert positions([(0, 5, "a", None), (1, 2, "b", "k"), (0, 6, "c", "k")]) == {0: 7, 1: 3}


def test_a_diary_names_operations(tmp_path: Path) -> None:
    one = member(tmp_path)
    history = MemberHistory(one)
    history.assigned([(0, None), (1, 4)], 3, "id")
    history.polled([(0, 0, "v", "k")])
    operations = history.begin("commit", {0: 1})
    history.end("commit", operations, {0: 1}, "NOT_COORDINATOR")
    assigned, other, polled, invoked, ended = lines_of(one.out)
    assert (assigned["offset"], other["offset"], other["generation"]) == (-1, 4, 3)
    assert "group_id" not in polled
    assert (invoked["type"], ended["type"], ended["error"]) == ("invoke", "info", "NOT_COORDINATOR")
    assert invoked["op"] == ended["op"] != polled["op"]


def test_javas_lines(tmp_path: Path) -> None:
    one = member(tmp_path, client="java")
    said = [
        {"name": "startup_complete"},
        {"name": "partitions_assigned", "partitions": [{"topic": "t", "partition": 2}]},
        {"name": "record_data", "topic": "t", "partition": 2, "offset": 7, "value": "v"},
        {"name": "offsets_committed", "success": True,
         "offsets": [{"topic": "t", "partition": 2, "offset": 8}]},
        {"name": "offsets_committed", "success": False, "error": "no",
         "offsets": [{"topic": "t", "partition": 2, "offset": 9}]},
    ]  # fmt: skip
    text = "WARN something\n" + "".join(json.dumps(line) + "\n" for line in said)
    _write_down(io.BytesIO(text.encode()), one)
    found = [(line["f"], line["type"], line.get("offset")) for line in lines_of(one.out)]
    assert found == [
        ("assign", "ok", None), ("assigned_all", "ok", None), ("poll", "ok", 7),
        ("commit", "ok", 8), ("commit", "info", 9),
    ]  # fmt: skip


def test_one_history_of_all_members(tmp_path: Path) -> None:
    group = GroupRun(tmp_path, Way(bootstrap="localhost:1"), "g", "t", "kafka-python")
    for number in (1, 2):
        history = MemberHistory(member(tmp_path, number))
        history.assignment([number])
        history.polled([(number, 0, f"v{number}", None)])
    with (tmp_path / "g-2.jsonl").open("a") as out:
        out.write('{"torn')
    assert collect(tmp_path / "run", [group]) == 2
    polls = lines_of(str(tmp_path / "run" / "history.jsonl"))
    assert [line["value"] for line in polls] == ["v1", "v2"]
    assert [line["index"] for line in polls] == [0, 1]
    assert len({line["op"] for line in polls}) == 2, "operations are numbered through"


HANGS = """
import faulthandler, signal, threading
faulthandler.enable()
signal.signal(signal.SIGTERM, lambda *_: None)
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.thorough
def test_a_member_that_does_not_leave_is_told_with_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_run, "END_S", 0.2)
    program = tmp_path / "group_member.py"
    program.write_text(HANGS)
    one = member(tmp_path)
    log = Path(one.out).with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, str(program)], stdout=out, stderr=out)
    eventually(lambda: b"ready" in log.read_bytes(), "it runs", log.read_text)
    group = GroupRun(tmp_path, Way(bootstrap=""), "g", "t", "kafka-python")
    group.members[1] = group_run.Running(one, process)
    assert _leave(group, 1) == [
        "g-1 has not left its group within 0.2 s: it is in threading.Event().wait()"
    ]
    assert process.returncode == -signal.SIGABRT
