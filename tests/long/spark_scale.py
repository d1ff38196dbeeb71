"""How long Spark takes for a history of N operations, and what memory: the table of docs/spark.md.

usage: python -m tests.long.spark_scale measure FILE OPERATIONS [SKEW]
       python -m tests.long.spark_scale page FILE
       python -m tests.long.spark_scale show FILE

`measure` generates a history, verifies it with 4 GiB for the driver, holds what was found against
what was planted, and adds a line to FILE.  `page` writes the lines into docs/spark.md, and prints
them in a sentence; `show` prints them alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import psutil

from highwater.verdict.by_spark import spark_submit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
BEGIN, END = "<!-- scale: by scripts/long spark-scale -->\n", "<!-- end of scale -->\n"
PHASES = ("session", "read", "views", "checks")
GIB = float(1 << 30)
BYTES_AN_OPERATION = 400
"""Of disk, for the history and what Spark spills: some 340 were seen for a million."""
Row = dict[str, Any]


class Peak:
    """The largest resident memory of a process and all below it, looked at twice a second."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(psutil.Process(pid),))
        self._thread.start()

    def stop(self) -> float:
        """GiB."""
        self._over.set()
        self._thread.join()
        return self.bytes / GIB

    def _watch(self, process: psutil.Process) -> None:
        while not self._over.wait(0.5):
            total = 0
            try:
                for one in (process, *process.children(recursive=True)):
                    total += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            self.bytes = max(self.bytes, total)


def submit(folder: Path, *job: str) -> tuple[float, float]:
    """Seconds and the peak of memory in GiB of one spark-submit; `folder` is Spark's to fill."""
    spark = spark_submit.find()
    command = [
        str(spark.home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "4g",
        "--conf", f"spark.local.dir={folder}", "--conf", "spark.ui.enabled=false", *job,
    ]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=spark.environment())
    peak = Peak(process.pid)
    try:
        code = process.wait()
    finally:
        memory = peak.stop()
    if code:
        sys.exit(f"spark-scale: {job[0]} ended with {code}")
    return time.monotonic() - began, memory


class LeastFree(threading.Thread):
    """How much of the disk was used for a while, at its most, in GiB."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._before = self._least = shutil.disk_usage(folder).free
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(1):
            self._least = min(self._least, shutil.disk_usage(self._folder).free)

    def stop(self) -> float:
        self._over.set()
        self.join()
        return (self._before - self._least) / GIB


def measure(file: Path, operations: int, skew: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    work = file.parent / f"history-{operations}-{skew:g}"
    refuse_without_room(file.parent, operations)
    row = _measured(work, operations, skew)
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    shutil.rmtree(work, ignore_errors=True)


def refuse_without_room(folder: Path, operations: int) -> None:
    """Before hours of work end with a full disk."""
    needed, free = operations * BYTES_AN_OPERATION, shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(
            f"spark-scale: {operations:,} operations need {needed / GIB:.0f} GiB of free disk in "
            f"{folder}, which has {free / GIB:.0f}: make room"
        )


def generated(work: Path, operations: int, skew: float) -> float:
    """The seconds that it took to make WORK/run, now or before this was cut off."""
    done = work / "generated.json"
    if not done.exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        words = ("--operations", str(operations), "--skew", str(skew))
        made, _ = submit(work / "spark", "spark/generate.py", str(work / "run"), *words)
        done.write_text(json.dumps(made))
    seconds: float = json.loads(done.read_text())
    return seconds


def _measured(work: Path, operations: int, skew: float) -> Row:
    made, run = generated(work, operations, skew), work / "run"
    shutil.rmtree(work / "spark", ignore_errors=True)
    disk, found = LeastFree(work), run / "found.json"
    words = ("--examples", "1000", "--found", str(found))
    try:
        took, memory = submit(work / "spark", "spark/verify.py", str(run), *words)
    finally:
        used = disk.stop()
    results = json.loads(found.read_text())
    planted = json.loads((run / "planted.json").read_text())["findings"]
    seen = {
        (check, one["topic"], one["partition"], one["offset"])
        for check, of in results["checks"].items()
        for one in of["examples"]
    }
    if seen != {tuple(place) for place in planted}:
        sys.exit(f"spark-scale: found {sorted(seen)}, planted {planted}")
    return {
        "operations": operations,
        "skew": skew,
        "rows": _count(run / "tables" / "history.parquet"),
        "MiB": sum(f.stat().st_size for f in (run / "tables").rglob("*.parquet")) / 2**20,
        "generate": made,
        **results["phases"],
        "verify": took,
        "GiB": memory,
        "disk GiB": used,
    }


def _count(table: Path) -> int:
    query = f"SELECT sum(num_rows) FROM parquet_file_metadata('{table}/*.parquet')"
    (count,) = duckdb.sql(query).fetchall()[0]
    return int(count)


def rows_of(file: Path) -> list[Row]:
    """The last measurement of each size."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    last = {(row["skew"], row["operations"]): row for row in rows}
    return [last[size] for size in sorted(last)]


def table(rows: list[Row]) -> str:
    heads = ("operations", "skew", "rows", "MiB", "generate", *PHASES, "verify", "GiB", "disk GiB")
    lines = [f"| {' | '.join(heads)} |", f"|{'---:|' * len(heads)}"]
    for row in rows:
        cells = []
        for head in heads:
            value = row[head]
            whole = head in ("operations", "rows", "MiB")
            cells.append(f"{value:,.0f}" if whole else f"{value:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[Row]) -> str:
    """Seconds of the verification against millions of rows, as GitHub draws it."""
    even = [row for row in rows if not row["skew"]]
    x = ", ".join(f'"{row["rows"] / 1e6:.1f}"' for row in even)
    y = ", ".join(f"{row['verify'] / (row['rows'] / 1e6):.1f}" for row in even)
    return (
        "```mermaid\nxychart-beta\n"
        '  title "seconds for a million rows, by millions of rows"\n'
        f'  x-axis [{x}]\n  y-axis "seconds"\n  bar [{y}]\n```\n'
    )


def write_page(rows: list[Row]) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{plot(rows)}\n{END}{after}")


def sentence(rows: list[Row]) -> str:
    told = [
        f"{row['operations']:,} operations{' (nine tenths in one partition)' * bool(row['skew'])} "
        f"in {row['verify']:.0f} s with {row['GiB']:.1f} GiB"
        for row in rows
    ]
    return f"each found what was planted, no more and no less: {', '.join(told)}"


def main(words: list[str]) -> None:
    verb, file = words[0], Path(words[1]).resolve()
    if verb == "measure":
        measure(file, int(words[2]), float(words[3]) if words[3:] else 0.0)
        return
    rows = rows_of(file)
    if verb == "page":
        write_page(rows)
    print(table(rows))
    print(sentence(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
