"""One chaos run of a target, with transactions and groups: `python -m tests.long.targets run TARGET
SEED FOLDER`; the results of all runs in FOLDER, in a sentence: `… total FOLDER`.

Every schedule from a seed has the leader of the acks=1 topic killed alone with its records, and a
run in which that loss is not seen is void: so a run that is valid has seen a planted loss.

The target `running` is Apache Kafka 3.9 that was started before the run, and is broken at its
address: processes by its control API, as a user's own commands would, and links at its proxies.
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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from highwater.cluster.ports import free_ports
from highwater.cluster.processes import apache

TARGETS = ("apache:4.2.0", "apache:2.4.0", "apache:3.6.0", "running", "compose")
FURTHER = (
    *("apache:4.2.0-apart", "apache:2.5.0", "apache:3.4.0", "apache:3.9.2"),
    *("apache:3.9.2-kraft", "apache:4.0.0"),
)
ROOT = Path(__file__).parents[2]
HIGHWATER = (sys.executable, "-m", "highwater.cli.main")
SECONDS = 12
"""A schedule's required faults take as long as they take; chance adds some until then."""
RATE = 25
"""Records a second of each producer: faults need records around them, and not many."""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[list[str]]:
    """The options that name an Apache Kafka started for this run."""
    port, control = free_ports(6)[::5]
    place = [f"--dir={folder}"]
    options = ["--program=apache", "--profile=kafka", "--no-proxies", f"--port={port}"]
    subprocess.run(
        [*HIGHWATER, "up", "--detach", *options, f"--control={control}", *place], check=True
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


def run(target: str, seed: str, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    words = [*HIGHWATER, "chaos", f"--seed={seed}", f"--duration={SECONDS}", f"--rate={RATE}"]
    words += ["--workload=transactions", "--workload=groups", "--engine=duckdb"]
    words.append(f"--out={folder / 'run'}")
    own = {"running": running, "compose": compose}.get(target)
    named = contextlib.nullcontext([f"--target={target}"])
    with named if own is None else own(folder / "cluster") as options:
        code = subprocess.run([*words, *options], check=False).returncode
    if code == 0:
        shutil.rmtree(folder / "run" / "cluster", ignore_errors=True)  # the brokers' disks
    return code


def total(folder: Path) -> str:
    """Of each target how many runs were valid, and how many records the planted losses lost."""
    verdicts: dict[str, Counter[str]] = {}
    losses: Counter[str] = Counter()
    for file in sorted(folder.glob("*-seed-*/run/verdict.json")):
        target = file.parents[1].name.rpartition("-seed-")[0]
        verdict = json.loads(file.read_text())
        verdicts.setdefault(target, Counter())[verdict["verdict"]] += 1
        losses[target] += int(verdict["expected_losses"])
    told = (
        f"{target}: {', '.join(f'{n} {word}' for word, n in sorted(found.items()))}, "
        f"{losses[target]:,} records of the planted losses seen"
        for target, found in verdicts.items()
    )
    return "; ".join(told) or "no run has ended"


def main() -> None:
    if sys.argv[1] == "total":
        print(total(Path(sys.argv[2])))
        return
    target, seed, folder = sys.argv[2], sys.argv[3], Path(sys.argv[4])
    sys.exit(run(target, seed, folder))


if __name__ == "__main__":
    main()
