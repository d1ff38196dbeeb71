"""Which threads of spark/verify.py the CPU seconds go to: the table of docs/spark.md.  Linux alone.

usage: python -m tests.long.spark_cpu RUN [large]

Wall clock says little on a machine that has other work; this does.  `large` gives the driver 4 GiB
and Java's own settings, as for a history of more than 300,000 lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from highwater.verdict.by_spark import spark_submit

ROOT = Path(__file__).parents[2]
KINDS = {
    "planning": r"Thread-\d+",  # those of PySpark's own that send queries
    "tasks": r"Executor task l.*|broadcast-excha.*",
    "Java's compilers": r"C[12] CompilerThre.*",
    "garbage collection": r"GC Thread#.*|G1 .*|VM Thread",
    "the scheduler": r"dag-scheduler-e.*|task-result-get.*|dispatcher-.*|spark-listener-.*",
    "Python": r"python.*",
}
OTHER = "start, and the rest"
Seconds = dict[tuple[int, int], tuple[str, float]]
"""Process and thread -> its name, and what it has used."""


def look(pid: int, seen: Seconds) -> None:
    """Adds what the threads of a process and of all below it have used until now."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            stat = (task / "stat").read_text()
            children = (task / "children").read_text().split()
        except OSError:  # it ended meanwhile
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        used = sum(int(ticks) for ticks in rest.split()[11:13])
        seen[(pid, int(task.name))] = (name, used / 100)
        for child in children:
            look(int(child), seen)


def kind_of(name: str) -> str:
    return next((kind for kind, names in KINDS.items() if re.fullmatch(names, name)), OTHER)


def measure(run: str, large: bool) -> dict[str, float]:
    """Seconds of each kind of thread."""
    spark = spark_submit.find()
    memory, java = ("4g", "-Dnone=1") if large else ("1g", spark_submit.QUICK_JAVA)
    seen: Seconds = {}
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            str(spark.home / "bin" / "spark-submit"), "--master", "local[2]",
            "--driver-memory", memory, "--driver-java-options", java,
            "--conf", f"spark.local.dir={scratch}", "--conf", "spark.ui.enabled=false",
            "spark/verify.py", run, "--found", f"{scratch}/found.json",
        ]  # fmt: skip
        job = subprocess.Popen(command, cwd=ROOT, env=spark.environment())
        while job.poll() is None:
            look(job.pid, seen)
            time.sleep(0.2)
    if job.returncode:
        sys.exit(f"spark-cpu: verify.py ended with {job.returncode}")
    kinds: dict[str, float] = defaultdict(float)
    for name, used in seen.values():
        kinds[kind_of(name)] += used
    return kinds


def main(words: list[str]) -> None:
    kinds = measure(str(Path(words[0]).resolve()), words[1:] == ["large"])
    for kind in (*KINDS, OTHER):
        print(f"{kinds[kind]:7.1f} {kind}")
    print(f"{sum(kinds.values()):7.1f} all")


if __name__ == "__main__":
    main(sys.argv[1:])
