"""One chaos run of a target, with transactions and groups: `python -m tests.long.targets TARGET
SEED FOLDER`.

Every schedule from a seed has the leader of the acks=1 topic killed alone with its records, and a
run in which that loss is not seen is void: so a run that is valid has seen a planted loss.

The target `running` is Apache Kafka 3.9 that was started before the run, and is broken at its
address: processes by its control API, as a user's own commands would, and links at our proxies.
The target `compose` is three brokers of Apache Kafka 4.2.0 in containers (`apache_compose`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from highwater.cluster import apache
from highwater.cluster.ports import free_ports

TARGETS = (
    *("apache:2.4.0", "apache:2.5.0", "apache:3.4.0", "apache:3.6.0", "apache:3.9.2"),
    *("apache:3.9.2-kraft", "apache:4.2.0", "running", "compose"),
)
ROOT = Path(__file__).parents[2]
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


@contextlib.contextmanager
def compose(folder: Path) -> Iterator[list[str]]:
    """The options that name a Compose project started for this run."""
    file = Path(__file__).parent / "apache_compose" / "compose.yaml"
    ports = {f"BROKER_{n}_PORT": str(port) for n, port in enumerate(free_ports(3), 1)}
    given = {"CLUSTER": f"apache-{os.getpid()}", "KAFKA_LIBS": str(apache.home("4.2.0") / "libs")}
    os.environ.update(settings(ROOT / ".env") | given | ports)
    command = ["docker", "compose", "-f", str(file)]
    try:
        subprocess.run([*command, "up", "--detach", "--wait"], check=True)
        yield [f"--target=compose:{file}"]
    finally:
        subprocess.run([*command, "down", "--volumes", "--timeout", "5"], check=False)


def settings(file: Path) -> dict[str, str]:
    """The images that this machine has instead of public ones, where it has any."""
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")


def main() -> None:
    target, seed, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    run = [*HIGHWATER, "chaos", f"--seed={seed}", f"--duration={SECONDS}", "--engine=duckdb"]
    run += ["--workload=transactions", "--workload=groups", f"--out={folder / 'run'}"]
    own = {"running": running, "compose": compose}.get(target)
    named = contextlib.nullcontext([f"--target={target}"])
    with named if own is None else own(folder / "cluster") as options:
        code = subprocess.run([*run, *options], check=False).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
