"""One chaos run of what clients of Kafka 4 bring, on Highwater and on Apache Kafka 4.2: `python -m
tests.long.new_groups run WORKLOAD TARGET SEED FOLDER`; the results of all runs, in a sentence:
`… total FOLDER`.

A run's schedule comes from its seed.  It has ended well if it is valid, and also if it is invalid,
because that is a result, too: the sentence names the checks and the seeds.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

WORKLOADS = ("consumer-groups", "share", "java-transactions")
OURS, APACHE = "highwater", "apache:4.2.0"
TARGETS = (OURS, APACHE)
SEEDS = 10
SECONDS, RATE = 20, 25
HIGHWATER = (sys.executable, "-m", "highwater.cli.main")


def name_of(workload: str, target: str, seed: int) -> str:
    return f"{workload}-{target.removeprefix('apache:')}-seed-{seed}"


def run(workload: str, target: str, seed: str, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    command = [*HIGHWATER, "chaos", f"--seed={seed}", f"--duration={SECONDS}", f"--rate={RATE}"]
    command += [f"--workload={workload}", f"--out={folder}", "--engine=duckdb"]
    command += [] if target == OURS else [f"--target={target}"]
    code = subprocess.run(command, check=False).returncode
    return 0 if code == 1 else code


def total(folder: Path) -> str:
    told = []
    for workload in WORKLOADS:
        for target in TARGETS:
            valid, broken = 0, defaultdict[str, list[int]](list)
            for seed in range(SEEDS):
                file = folder / name_of(workload, target, seed) / "verdict.json"
                if not file.exists():
                    continue
                verdict = json.loads(file.read_text())
                valid += verdict["verdict"] == "valid"
                for check, found in verdict["checks"].items():
                    if found["status"] == "violated":
                        broken[check].append(seed)
            some = f"{workload} on {target}: {valid} of {SEEDS} valid"
            by = "; ".join(f"{c} in seeds {', '.join(map(str, s))}" for c, s in broken.items())
            told.append(f"{some} ({by})" if by else some)
    return ". ".join(told)


def main() -> None:
    if sys.argv[1] == "total":
        print(total(Path(sys.argv[2])))
        return
    workload, target, seed, folder = sys.argv[2:]
    sys.exit(run(workload, target, seed, Path(folder)))


if __name__ == "__main__":
    main()
