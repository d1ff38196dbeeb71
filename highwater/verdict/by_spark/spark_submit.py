"""Runs the jobs in spark/ by spark-submit: finds PySpark, Java and the Kafka connector, and streams
progress.

The connector (the Kafka source of Spark, Kafka's Java client and what they need) is not part of
PySpark.  It is resolved once, by Maven where it is installed, else by Spark's own resolver, and
kept in the user's cache. Where neither can, the checks still run, on what the harness itself
consumed, and the verdict says so.

A session starts once for reading and checking.  The job sets most settings itself, by the size of
the data; this module sets those that a running job cannot change: the memory, and for a small
history a Java that compiles quickly and not well, which halves the work of starting.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from highwater import late_setup
from highwater.base.install_hint import install_hint
from highwater.child_processes import Child
from highwater.maven import Artifact, FetchError, cache_dir, fetch_jars, has_jars
from highwater.verdict.location import spark_folder
from highwater.verdict.results import Results

SPARK: Final = "4.0.0"
SCALA: Final = "2.13"
CONNECTOR: Final = (
    Artifact("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", SPARK),
    Artifact("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", SPARK),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.0"),
    Artifact("org.apache.commons", "commons-pool2", "2.12.0"),
)
"""The jars that PySpark lacks; it has everything else that the source needs."""

SMALL_ROWS: Final = 300_000
QUICK_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xms1g -Xmn500m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Java's options for a job too short to profit from its second compiler and parallel collectors:
memory that need not grow first, and no verification of the classes in Spark's own jars."""
PINNED: Final = f"pyspark=={SPARK}"
INSTALL: Final = f"install it beside Highwater: {install_hint('spark')} ({PINNED})"

MARK: Final = "verify: "
"""Begins the lines of a job that are meant for people."""

Progress = Callable[[str], None]


class SparkMissing(Exception):
    """Spark cannot be used here; the message says what is missing and how to get it."""


class SparkFailed(Exception):
    """spark-submit ended badly; the message names its log."""


@dataclass(frozen=True, slots=True)
class Spark:
    """The programs that start a job."""

    home: Path
    java: str

    def environment(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_CONF")}
        env["SPARK_HOME"] = str(self.home)
        env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = sys.executable
        env["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), env.get("PATH", os.defpath)]
        )
        env["SPARK_LOCAL_IP"] = (
            "127.0.0.1"  # else a machine's odd host name may keep the driver from starting
        )
        return env


def find(progress: Progress = print) -> Spark:
    """PySpark of this environment and a Java that it runs on, or SparkMissing.

    Waits for a PySpark that is still being installed, unless there is no Java for it.
    """
    java = _find_java()
    try:
        late_setup.wait(progress)
    except late_setup.LateSetupFailed as error:
        raise SparkMissing(str(error)) from error
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkMissing(f"PySpark is not installed: {INSTALL}")
    home = Path(spec.origin).parent
    if not (home / "bin" / "spark-submit").is_file():
        raise SparkMissing(f"{home} holds no bin/spark-submit (a client-only PySpark?): {INSTALL}")
    return Spark(home, java)


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or (home and not os.access(java, os.X_OK)):
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on PATH"
        raise SparkMissing(
            f"Spark needs Java 17 or later, and {where}: install a JDK or set JAVA_HOME"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version.group(1)) < 17:
        found = version.group(1) if version else "of unknown version"
        raise SparkMissing(
            f"Spark needs Java 17 or later, and {java} is Java {found}: set JAVA_HOME"
        )
    return java


def cache_folder() -> Path:
    return cache_dir() / f"spark-kafka-{SPARK}"


def connector_arguments(progress: Progress) -> list[str]:
    """The arguments of spark-submit that bring the Kafka source: --jars from the cache, else
    --packages."""
    folder = cache_folder()
    if not has_jars(CONNECTOR, folder):
        if shutil.which("mvn") is None:
            progress("Maven is not installed: Spark resolves its Kafka connector itself")
            packages = ",".join(":".join(one[:3]) for one in CONNECTOR)
            # each jar is named, so that none that PySpark ships is fetched again
            return ["--packages", packages, "--conf", f"spark.jars.ivy={cache_dir() / 'ivy'}"]
        progress(f"fetching Spark's Kafka connector by Maven, once, into {folder}")
        try:
            fetch_jars("Spark's Kafka connector", CONNECTOR, folder, alone=True)
        except FetchError as error:
            raise SparkMissing(str(error)) from error
    return ["--jars", ",".join(str(folder / artifact.jar) for artifact in CONNECTOR)]


def verify(
    run: Path,
    *,
    rows: int,
    bootstrap: str | None = None,
    topics: Sequence[str] = (),
    examples: int = 5,
    master: str = "local[2]",
    progress: Progress = print,
    timeout_s: float = 1800,
) -> Results:
    """Runs spark/verify.py on a run whose tables are built; returns its findings, and the outcome
    of its own reading (`ingest` and `ingest_error` are always there).

    With `bootstrap` it reads the topics first.  Raises SparkMissing or SparkFailed.
    """
    spark = find(progress)
    out = run / "spark.json"
    out.unlink(missing_ok=True)
    job = [str(spark_folder() / "verify.py"), str(run), "--found", str(out)]
    job += ["--examples", str(examples)]
    connector: list[str] = []
    problem = None
    if bootstrap and topics:
        try:
            connector = connector_arguments(progress)
            job += ["--bootstrap", bootstrap, "--topics", ",".join(topics)]
        except SparkMissing as error:
            problem = str(error)
            progress(problem)
    log = run / "spark.log"
    with tempfile.TemporaryDirectory(prefix="highwater-spark-", ignore_cleanup_errors=True) as tmp:
        options = _tuning(rows, master, tmp)
        how: dict[str, Any] = {"progress": progress, "timeout_s": timeout_s}
        try:
            submit(spark, job, log, options=[*connector, *options], **how)
        except SparkFailed:
            if "--packages" not in connector or "nresolved" not in log.read_text(errors="replace"):
                raise
            problem = f"Spark could not resolve its Kafka connector: see {log}"
            progress(problem)
            submit(spark, job[: job.index("--bootstrap")], log, options=options, **how)
    result: Results = json.loads(out.read_text(encoding="utf-8"))
    result["ingest_error"] = result.get("ingest_error") or problem
    return result


def _tuning(rows: int, master: str, scratch: str) -> list[str]:
    java, memory = f"-Djava.io.tmpdir={scratch}", "2g"
    if rows < SMALL_ROWS:
        java, memory = f"{java} {QUICK_JAVA}", "1g"
    elif master.startswith("local"):
        memory = "4g"
    settings = {
        "spark.ui.enabled": "false",
        "spark.local.dir": scratch,
        "spark.driver.extraJavaOptions": java,
    }
    options = ["--master", master, "--driver-memory", memory]
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    return options


def submit(
    spark: Spark,
    job: Sequence[str],
    log: Path,
    *,
    options: Sequence[str] = (),
    progress: Progress = print,
    timeout_s: float = 1800,
) -> None:
    """Runs one job to its end; its output goes to the file `log`, its lines `verify: ...` also to
    `progress`."""
    command = [str(spark.home / "bin" / "spark-submit"), *options, *job]
    progress("starting Spark")
    log.unlink(missing_ok=True)
    child = Child("spark-submit", command, output=log, cwd=Path.cwd(), env=spark.environment())
    deadline = time.monotonic() + timeout_s
    passed_on = 0
    try:
        code = None
        while code is None:
            code = child.wait(0.1)
            said = [line for line in child.new_output().split("\n")[:-1] if line.startswith(MARK)]
            for line in said[passed_on:]:
                progress(line.removeprefix(MARK))
            passed_on = len(said)
            if code is None and time.monotonic() > deadline:
                raise SparkFailed(f"Spark did not end in {timeout_s:.0f} s: see {log}")
    finally:
        end(child)
    if code:
        raise SparkFailed(f"spark-submit ended with {code}: {_last_error(log)} (see {log})")


def end(child: Child) -> None:
    """Ends the job's whole process group: spark-submit starts Java, and Java starts Python."""
    if child.running:
        os.killpg(child.popen.pid, signal.SIGKILL)
        child.popen.wait()


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("at ", "..."))]
    telling = [
        line
        for line in said
        if "Error" in line or "Exception" in line or line.startswith("verify:")
    ]
    return (telling or said or ["it said nothing"])[-1][:300]


if __name__ == "__main__":  # scripts/setup: so that no first verdict waits for the connector
    try:
        connector_arguments(print)
    except SparkMissing as missing:
        sys.exit(str(missing))
