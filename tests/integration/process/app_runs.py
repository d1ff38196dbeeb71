"""Runs of `highwater chaos --app`, and the Kafka Streams application that some of them try."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from highwater.cluster.processes.zookeeper_process import find_java
from highwater.maven import Artifact, cache_dir, fetch_jars
from tests import guarded

STREAMS: Final = "4.2.0"
ARTIFACTS: Final = (
    Artifact("org.apache.kafka", "kafka-streams", STREAMS),
    Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
INVOICES: Final = Path(__file__).parent / "apps" / "Invoices.java"


def run_app(
    folder: Path,
    app: str,
    *options: str,
    schedule: list[dict[str, Any]] | None = None,
    seed: int = 1,
    timeout_s: float = 350,
) -> dict[str, Any]:
    """FOLDER/run/verdict.json with "code" and "said"; without a schedule the seed decides."""
    command = [sys.executable, guarded.__file__, "chaos", "--app", app]
    command += ["--input=orders", "--output=invoices", "--match=$.order_id", f"--seed={seed}"]
    command += [f"--out={folder / 'run'}", *options]
    if schedule is not None:
        (folder / "faults.json").write_text(json.dumps(schedule))
        command.append(f"--faults={folder / 'faults.json'}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert (folder / "run" / "verdict.json").exists(), done.stdout + done.stderr[-6000:]
    verdict: dict[str, Any] = json.loads((folder / "run" / "verdict.json").read_text())
    verdict["code"], verdict["said"] = done.returncode, done.stdout + done.stderr
    assert done.stdout.startswith(verdict["headline"])
    return verdict


def streams_libs() -> Path:
    """The folder of Kafka Streams' jars, fetched where they are not there."""
    folder = cache_dir() / f"kafka-streams-{STREAMS}" / "libs"
    fetch_jars(f"Kafka Streams {STREAMS}", ARTIFACTS, folder)
    return folder


def write_log4j(file: Path) -> Path:
    file.write_text(
        "log4j.rootLogger=WARN, E\nlog4j.appender.E=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.E.target=System.err\n"
        "log4j.appender.E.layout=org.apache.log4j.SimpleLayout\n"
    )
    return file


def compiled(source: Path, classes: Path) -> Path:
    """Compiles it once for all its starts, into `classes`."""
    javac = Path(find_java()).resolve().with_name("javac")
    words = [str(javac), "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-d", str(classes)]
    subprocess.run([*words, "-cp", f"{streams_libs()}/*", str(source)], check=True)
    return classes


def invoices(folder: Path, guarantee: str) -> str:
    """Compiles apps/Invoices.java into `folder`, which has its state, too; a value of --app."""
    classes = compiled(INVOICES, folder / "classes")
    log4j = write_log4j(folder / "log4j.properties")
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{streams_libs()}/*:{classes}"]
    return shlex.join([find_java(), *options, "Invoices", guarantee, str(folder / "state")])
