"""A known bug of Apache Kafka, provoked by a schedule of examples/known-bugs: `python -m
tests.long.known_bugs run BUG RELEASE SEED FOLDER`; the results of all runs in FOLDER, in a
sentence: `… total FOLDER`.

Each bug is tried on a release that has it and on a later one.  A run that is invalid has shown
something, and one that is valid has not; both are results.  Only a void one has failed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SCHEDULES = Path(__file__).parents[2] / "examples" / "known-bugs"
HIGHWATER = (sys.executable, "-m", "highwater.cli.main")


@dataclass(frozen=True, slots=True)
class Bug:
    affected: str
    later: str
    options: tuple[str, ...] = ()


BUGS = {
    "late-endtxn": Bug("3.6.0", "4.2.0", ("--workload=transactions",)),
    "kafka-14704": Bug("3.4.0", "3.6.0"),
    "kafka-9835": Bug("2.5.0", "3.6.0"),
}


def run(bug: str, release: str, seed: str, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    command = [*HIGHWATER, "chaos", f"--target=apache:{release}", f"--seed={seed}", "--duration=3"]
    command += [f"--faults={SCHEDULES / bug}.yaml", f"--out={folder}", "--engine=duckdb"]
    command.append("--rate=25")
    code = subprocess.run([*command, *BUGS[bug].options], check=False).returncode
    return 0 if code in (0, 1) else code


def total(folder: Path) -> str:
    """How many runs of each bug and release were flagged, and by which checks."""
    told = []
    for bug, of in BUGS.items():
        for release in (of.affected, of.later):
            files = sorted(folder.glob(f"{bug}-{release}-seed-*/verdict.json"))
            verdicts = [json.loads(file.read_text()) for file in files]
            checks = Counter(
                name
                for verdict in verdicts
                for name, check in verdict["checks"].items()
                if check["status"] == "violated"
            )
            flagged = sum(verdict["verdict"] == "invalid" for verdict in verdicts)
            by = ", ".join(f"{name} {n}" for name, n in sorted(checks.items()))
            some = f"{bug} on {release}: {flagged} of {len(verdicts)} flagged"
            told.append(f"{some} ({by})" if by else some)
    return "; ".join(told)


def main() -> None:
    if sys.argv[1] == "total":
        print(total(Path(sys.argv[2])))
        return
    bug, release, seed, folder = sys.argv[2:]
    sys.exit(run(bug, release, seed, Path(folder)))


if __name__ == "__main__":
    main()
