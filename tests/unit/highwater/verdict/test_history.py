"""The history must survive a crash of its writer, and never count the unknown as a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from highwater.cluster.run_folder import RunFolder, RunInfo, TopicInfo
from highwater.kafka.types import TopicPartition
from highwater.simulation.sim_history import History
from highwater.verdict import history
from highwater.verdict.history import HistoryWriter, check_value, ending_of, make_value, read_lines

ROOT = Path(__file__).parents[4]


def test_lines_of_many_threads_are_whole_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path, run="r", seed=7, capacity=8)

    def client(name: str) -> None:
        for n in range(200):
            writer.write(
                name, "test", "send", "invoke", op=writer.new_id(), sequence=n, offset=None
            )

    threads = [threading.Thread(target=client, args=(f"p{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    lines = list(read_lines(path))
    assert [line["index"] for line in lines] == list(range(800))
    assert len({line["op"] for line in lines}) == 800
    assert "offset" not in lines[0]
    for name in ("p0", "p1", "p2", "p3"):
        assert [x["sequence"] for x in lines if x["process"] == name] == list(range(200))


def test_a_field_that_no_check_would_see_is_refused(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history.jsonl", run="r", seed=7)
    with pytest.raises(ValueError, match="no column colour, weight: add it"):
        writer.write("p", "test", "send", "invoke", op=1, weight=2, colour="red")
    writer.close()
    assert list(read_lines(writer.path)) == []
    with pytest.raises(ValueError, match="no column colour"):
        History().line("p", "send", "invoke", TopicPartition("t", 0), colour="red")


def test_the_schema_needs_the_standard_library_alone() -> None:
    code = "import sys, highwater.verdict.history_schema; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "highwater.verdict.history_schema" in told.stdout.split()


def test_torn_last_line_is_dropped_and_a_torn_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n{"a":')
    assert list(read_lines(path)) == [{"a": 1}, {"a": 2}]
    path.write_bytes(b'{"a":1}\n{"a":\n{"a":3}\n')
    with pytest.raises(history.HistoryError, match="line 2"):
        list(read_lines(path))


def test_a_disk_that_fails_is_told_to_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    writer = HistoryWriter(tmp_path / "history.jsonl", run="r", seed=1, capacity=2)
    monkeypatch.setattr(os, "write", full)

    def write_much() -> None:
        for _ in range(1000):
            writer.write("p", "test", "send", "invoke")

    with pytest.raises(history.HistoryError, match="No space left"):
        write_much()
    with pytest.raises(history.HistoryError):
        writer.close()


def test_value_describes_itself_and_damage_is_seen() -> None:
    value = make_value("run-1", "producer-a", 12, 345, size=100)
    assert len(value) == 100
    assert check_value(value) == ("run-1", "producer-a", 12, 345)
    assert check_value(value.replace("|12|", "|13|")) is None
    assert check_value("anything") is None


@pytest.mark.parametrize(
    ("error", "attempts", "acks", "expected"),
    [
        ("REQUEST_TIMED_OUT", 1, -1, "info"), ("_MSG_TIMED_OUT", 1, -1, "info"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", 1, -1, "info"), ("NOT_ENOUGH_REPLICAS", 1, -1, "fail"),
        ("NOT_ENOUGH_REPLICAS", 2, -1, "info"), ("NOT_LEADER_OR_FOLLOWER", 1, 1, "fail"),
        ("NOT_LEADER_OR_FOLLOWER", 1, -1, "info"), ("MESSAGE_TOO_LARGE", 1, -1, "fail"),
    ],
)  # fmt: skip
def test_only_proof_is_a_failure(error: str, attempts: int, acks: int, expected: str) -> None:
    assert ending_of(error, attempts=attempts, acks=acks) == expected


def test_run_folder_keeps_what_it_was_told_and_refuses_a_second_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    info = RunInfo("r", 7, "process", 40.0, topics=[TopicInfo("safe", 3, 3, 2)], seen={"x": 1})
    folder.write_info(info)
    assert folder.read_info() == info
    folder.history.touch()
    with pytest.raises(FileExistsError, match="--out"):
        folder.create()
