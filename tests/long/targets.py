"""One chaos run of a target, with transactions and groups: `python -m tests.long.targets TARGET
SEED FOLDER`.

Every schedule from a seed has the leader of the acks=1 topic killed alone with its records, and a
run in which that loss is not seen is void: so a run that is valid has seen a planted loss.

The target `running` is Apache Kafka 3.9 that was started before the run, and is broken at its
address: processes by its control API, as a user's own commands would, and links at our proxies.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from highwater.cluster.ports import free_ports

TARGETS = (
    *("apache:2.4.0", "apache:2.5.0", "apache:3.4.0", "apache:3.6.0", "apache:3.9.2"),
    *("apache:3.9.2-kraft", "apache:4.2.0", "running"),
)
HIGHWATER = (sys.executable, "-m", "highwater.cli.main")
SECONDS = 20


@contextlib.contextmanager
def running(folder: Path) -> Iterator[list[str]]:
    """The options that name an Apache Kafka started for this run."""
    port, control = free_ports(6)[::5]
    place = [f"--dir={folder}"]
    wish = ["--program=apache", "--profile=kafka", "--no-proxies", f"--port={port}"]
    subprocess.run(
        [*HIGHWATER, "up", "--detach", *wish, f"--control={control}", *place], check=True
    )
    try:
        options = [f"--target=127.0.0.1:{port}"]
        for verb in ("kill", "start", "pause", "resume"):
            body = shlex.quote(json.dumps({"name": verb, "target": "broker-{id}"}))
            call = f"curl -sf -m 100 127.0.0.1:{control}/v1/faults -d {body}"
            options.append(f"--{verb}-command={call}")
        yield options
    finally:
        subprocess.run([*HIGHWATER, "down", "--delete", *place], check=False)


def main() -> None:
    target, seed, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    run = [*HIGHWATER, "chaos", f"--seed={seed}", f"--duration={SECONDS}", "--engine=duckdb"]
    run += ["--workload=transactions", "--workload=groups", f"--out={folder / 'run'}"]
    named = contextlib.nullcontext([f"--target={target}"])
    with running(folder / "cluster") if target == "running" else named as options:
        code = subprocess.run([*run, *options], check=False).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
