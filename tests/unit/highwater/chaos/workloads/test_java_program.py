"""The Java program's lines become lines of the history, and its end is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.chaos.workloads import java_transactions
from highwater.chaos.workloads.java_transactions import OPERATIONS_FROM, JavaTransactions
from highwater.chaos.workloads.recorder import Recorder, Spec, Topic
from highwater.verdict.history import HistoryWriter, read_lines

SAYS = """
import sys
print('{"process":"t-0","f":"init_txn","type":"info","t_ns":5,"op":1,"error":"X"}')
print('{"process":"t-0","f":"send","type":"ok","t_ns":6,"op":2,"topic":"bank","offset":7}')
assert sys.stdin.readline() == "stop\\n"
print('{"process":"t-0","f":"poll","type":"ok","t_ns":8,"op":3,"poll_id":3,"n":1,"offset":7}')
"""


def client(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> JavaTransactions:
    spec = Spec(
        bootstrap="here:1", run="r", seed=1, history=str(folder / "history.jsonl"),
        safe=Topic("safe", 1), lossy=Topic("lossy", 1),
    )  # fmt: skip
    writer = HistoryWriter(Path(spec.history), run="r", seed=1)
    made = JavaTransactions(Recorder(spec, writer), folder, 3)
    monkeypatch.setattr(made, "_command", lambda _: [sys.executable, "-c", program])
    return made


def lines(made: JavaTransactions) -> list[dict[str, Any]]:
    made.recorder.writer.close()
    return list(read_lines(made.recorder.writer.path))


def test_its_lines_are_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = client(tmp_path, monkeypatch, SAYS)
    made.stopping.set()
    made.work()
    counts = made.recorder.counts
    assert (counts.acked, counts.unknown, counts.polled) == (1, 1, 1)
    assert counts.errors == {"X": 1}
    found = lines(made)
    assert [line["op"] - OPERATIONS_FROM for line in found] == [1, 2, 3]
    assert {(line["client"], line["process"]) for line in found} == {("java", "t-0")}
    assert [line["t_ns"] for line in found] == [5, 6, 8], "the clock is the machine's"


def test_a_program_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = client(tmp_path, monkeypatch, "import sys; sys.exit('no JDK')")
    with pytest.raises(RuntimeError, match="ended with 1: no JDK"):
        made.work()
    made.recorder.writer.close()


def test_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_transactions, "find_java", lambda: "java")
    made = client(tmp_path, monkeypatch, "")
    command = JavaTransactions._command(made, tmp_path)
    source, settings = Path(command[-2]), Path(command[-1]).read_text().splitlines()
    assert source.read_text().startswith("//"), "the source is beside the module"
    assert "bootstrap.servers=here:1" in settings
    assert "workload.partitions=3" in settings
    made.recorder.writer.close()
