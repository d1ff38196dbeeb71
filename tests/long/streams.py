"""A chaos run of a Kafka Streams application: `python -m tests.long.streams GUARANTEE SEED FOLDER`.

`exactly_once_v2` has to be valid, and `at_least_once` to repeat outputs and to lose none.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.integration.process.app_runs import invoices, run_app

GUARANTEES = ("exactly_once_v2", "at_least_once")
OPTIONS = ("--copies=2", "--duration=30", "--within=120", "--exactly-once")


def main() -> None:
    guarantee, seed, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    folder.mkdir(parents=True)
    app = invoices(folder, guarantee)
    verdict = run_app(folder, app, *OPTIONS, seed=seed, timeout_s=900)
    print(verdict["said"])
    checks = {rule: check["violations"] for rule, check in verdict["checks"].items()}
    if guarantee == "exactly_once_v2":
        as_it_should = verdict["verdict"] == "valid"
    else:
        as_it_should = verdict["verdict"] == "invalid" and checks["K8"] > 0 and checks["K7"] == 0
    print(f"{guarantee}, seed {seed}: {verdict['verdict']}, repeated {checks['K8']:,}")
    sys.exit(not as_it_should)


if __name__ == "__main__":
    main()
