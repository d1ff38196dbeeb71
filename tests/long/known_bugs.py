"""A known bug of Apache Kafka, provoked by a schedule of examples/known-bugs: `python -m
tests.long.known_bugs run BUG RELEASE SEED FOLDER`; the results of all runs in FOLDER, in a
sentence: `… total FOLDER`.

Each bug is tried on a release that has it and on a later one; the late EndTxn also on Highwater,
and with the Java client, whose transactions are of version 2: each has an epoch of its own.  A run
that violates the checks of the bug, and no others, has shown it, and a valid one has not; both are
results.  Any other has failed.
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


OURS = "highwater"
"""Stands for a release: Highwater's own brokers."""


@dataclass(frozen=True, slots=True)
class Bug:
    releases: tuple[str, ...]
    shows: frozenset[str]
    """The checks that it would violate."""
    options: tuple[str, ...] = ()
    schedule: str = ""
    """Where it is not named as the bug."""


_ENDTXN = frozenset(("C6", "T3", "T4", "T5", "T7"))
BUGS = {
    "late-endtxn": Bug(("3.6.0", "4.2.0", OURS), _ENDTXN, ("--workload=transactions",)),
    "late-endtxn-version-2": Bug(
        ("4.2.0", OURS), _ENDTXN, ("--workload=java-transactions",), "late-endtxn"
    ),
    "kafka-14704": Bug(("3.4.0", "3.6.0"), frozenset(("C1", "C13", "C15"))),
    "stale-leader": Bug(("2.4.0", "3.6.0"), frozenset(("C1", "C2", "C7", "C13", "C14", "C15"))),
    "kafka-9835": Bug(("2.5.0", "3.6.0"), frozenset(("C1", "C15"))),
}


def run(bug: str, release: str, seed: str, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    of = BUGS[bug]
    command = [*HIGHWATER, "chaos", f"--seed={seed}", "--duration=3", "--rate=25"]
    command += [f"--faults={SCHEDULES / (of.schedule or bug)}.yaml", f"--out={folder}"]
    command += [] if release == OURS else [f"--target=apache:{release}"]
    code = subprocess.run([*command, "--engine=duckdb", *of.options], check=False).returncode
    return 0 if code == 1 and _shown(bug, folder / "verdict.json") else code


def _shown(bug: str, file: Path) -> set[str]:
    """The checks that the bug has violated; none where others are violated, too."""
    checks = json.loads(file.read_text())["checks"]
    violated = {name for name, check in checks.items() if check["status"] == "violated"}
    return violated if violated <= BUGS[bug].shows else set()


def total(folder: Path) -> str:
    """How many runs of each bug and release were flagged, and by which checks."""
    told = []
    for bug, of in BUGS.items():
        for release in of.releases:
            files = sorted(folder.glob(f"{bug}-{release}-seed-*/verdict.json"))
            shown = [_shown(bug, file) for file in files]
            checks = Counter(name for names in shown for name in names)
            some = f"{bug} on {release}: shown in {sum(map(bool, shown))} of {len(files)}"
            by = ", ".join(f"{name} {n}" for name, n in sorted(checks.items()))
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
