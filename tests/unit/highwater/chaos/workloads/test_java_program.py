"""A Java program's lines become lines of the history; its end is told, or it is started again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from highwater.chaos.workloads import java_program, java_transactions, share_members
from highwater.chaos.workloads.java_program import OPERATIONS_FROM
from highwater.chaos.workloads.java_transactions import JavaTransactions
from highwater.chaos.workloads.recorder import Recorder, Spec, Topic
from highwater.chaos.workloads.share_members import DIED, ShareGroup
from highwater.verdict.history import HistoryWriter, read_lines

SAYS = """
import sys
print('{"process":"t-0","f":"init_txn","type":"info","t_ns":5,"op":1,"error":"X"}')
print('{"process":"t-0","f":"send","type":"ok","t_ns":6,"op":2,"topic":"bank","offset":7}')
assert sys.stdin.readline() == "stop\\n"
print('{"process":"t-0","f":"poll","type":"ok","t_ns":8,"op":3,"poll_id":3,"n":1,"offset":7}')
"""
SHARES = f"""
import pathlib, sys, time
settings = pathlib.Path(sys.argv[1]).read_text()
name = settings.partition("workload.name=")[2].split()[0]
print('{{"process":"%s","f":"acquire","type":"ok","t_ns":6,"op":1,"offset":7}}' % name, flush=True)
deaths = pathlib.Path(sys.argv[1]).parent / "deaths"
if name == "share-0":
    assert sys.stdin.readline() == "stop\\n"
    while not (deaths.exists() and deaths.read_text().count("x") > 1):
        time.sleep(0.01)
elif name in ("share-1", "share-2"):
    deaths.open("a").write("x")
    sys.exit({DIED})
else:
    time.sleep(60)
"""
"""Two of the mortal processes die by themselves, and then the one ends that drains the topic."""


def recorder(folder: Path) -> Recorder:
    spec = Spec(
        bootstrap="here:1", run="r", seed=1, history=str(folder / "history.jsonl"),
        safe=Topic("safe", 1), lossy=Topic("lossy", 1),
    )  # fmt: skip
    return Recorder(spec, HistoryWriter(Path(spec.history), run="r", seed=1))


def runs(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Instead of Java, Python runs this program."""
    told = lambda *given: [sys.executable, "-c", program, str(given[-1])]  # noqa: E731
    monkeypatch.setattr(java_program, "command", told)
    for module in (java_transactions, share_members):
        monkeypatch.setattr(module, "compile_program", lambda *_: "classes")


def cannot(_: ShareGroup) -> None:
    raise OSError("no memory")


def lines(recorder: Recorder) -> list[dict[str, Any]]:
    recorder.writer.close()
    return list(read_lines(recorder.writer.path))


def test_its_lines_are_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, SAYS)
    made = JavaTransactions(recorder(tmp_path), tmp_path, 3)
    made.stopping.set()
    made.work()
    counts = made.recorder.counts
    assert (counts.acked, counts.unknown, counts.polled) == (1, 1, 1)
    assert counts.errors == {"X": 1}
    found = lines(made.recorder)
    assert [line["op"] - OPERATIONS_FROM for line in found] == [1, 2, 3]
    assert {(line["client"], line["process"]) for line in found} == {("java", "t-0")}
    assert [line["t_ns"] for line in found] == [5, 6, 8], "the clock is the machine's"
    settings = (tmp_path / "java-transactions.properties").read_text().splitlines()
    assert {"bootstrap.servers=here:1", "workload.partitions=3"} <= set(settings)


def test_a_program_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, "import sys; sys.exit('no JDK')")
    for made in (
        JavaTransactions(recorder(tmp_path), tmp_path, 3),
        ShareGroup(recorder(tmp_path), tmp_path, "safe"),
    ):
        with pytest.raises(RuntimeError, match="ended with 1: no JDK"):
            made.work()
        made.recorder.writer.close()


def test_members_that_die_are_started_again_until_the_group_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, SHARES)
    made = ShareGroup(recorder(tmp_path), tmp_path, "safe")
    made.stopping.set()
    made.work()
    found = lines(made.recorder)
    assert {"share-0", "share-1", "share-2"} <= {line["process"] for line in found}
    operations = [line["op"] for line in found]
    assert len(set(operations)) == len(operations), "each process numbers its own"


def test_a_line_that_death_has_cut_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, SAYS + 'sys.stdout.write(\'{"process":"t-0","f"\')')
    made = JavaTransactions(recorder(tmp_path), tmp_path, 3)
    made.stopping.set()
    made.work()
    assert len(lines(made.recorder)) == 3


def test_members_that_cannot_be_started_again_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, SAYS)  # the one that drains ends well
    monkeypatch.setattr(ShareGroup, "_start_until_over", cannot)
    made = ShareGroup(recorder(tmp_path), tmp_path, "safe")
    made.stopping.set()
    with pytest.raises(RuntimeError, match="no further member dies: OSError: no memory"):
        made.work()
    made.recorder.writer.close()


def test_the_sources_are_beside_the_module() -> None:
    for name in ("Workload", "Transactions", "ShareGroup"):
        source = Path(java_program.__file__).with_name(f"{name}.java")
        assert source.read_text().startswith("//")
