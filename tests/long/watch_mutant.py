"""`highwater chaos --watch` on brokers with a mutant: it is named while the run goes on, and the
run ends then.

usage: python -m tests.long.watch_mutant [SECONDS]

Mutant 14 answers acks=all when the leader has appended: what it acknowledged is lost with the
leader, and the next one gives the offsets away again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from highwater.verdict.watching.alarms_file import read_alarms, told
from tests.integration.mutants.runs import CASES, SCHEDULES
from tests.simulation.mutation import mutated_tree

MUTANT = 14
LONGEST_S = 120.0


def main(seconds: float) -> int:
    case = next(case for case in CASES if case.id == MUTANT)
    with tempfile.TemporaryDirectory() as work, mutated_tree(case.mutant) as source:
        out = Path(work) / "run"
        command = [sys.executable, "-m", "highwater.cli.main", "chaos", "--watch", "--seed", "1"]
        command += ["--duration", f"{seconds:g}", "--engine", "duckdb", "--out", str(out)]
        command += ["--faults", str(SCHEDULES / f"{case.schedule}.json")]
        command += ["--broker-source", str(source)]
        began = time.monotonic()
        done = subprocess.run(command, check=False)
        took = time.monotonic() - began
        alarms = read_alarms(out / "watch" / "alarms.jsonl")
        verdict = json.loads((out / "verdict.json").read_text())
    for alarm in alarms:
        print(told(alarm))
    watched = verdict["checks"]["W1"]
    good = done.returncode == 1 and alarms and watched["status"] == "violated"
    print(
        f"mutant {MUTANT}, a run of {seconds:.0f} s at most: {len(alarms)} alarms, the first"
        f" {told(alarms[0]) if alarms else 'never'}; verdict {verdict['verdict']} after"
        f" {took:.0f} s in all"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else LONGEST_S))
