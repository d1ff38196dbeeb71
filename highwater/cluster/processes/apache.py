"""Apache Kafka: the benchmark's yardstick, an oracle for tests, and a target of chaos runs.

3.9 is the last line that runs with ZooKeeper, and the default here.  A release's jars come from
Maven into the project's cache, once.  The process runtime starts it as it starts Highwater, from
the same properties.  This module has Apache's own parts: the place of the jars, the flags of its
JVM, and the call of its command-line classes.

`python -m highwater.cluster.processes.apache` fetches the jars and prints their place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from highwater.child_processes import StartError
from highwater.cluster.processes.programs import ApacheKafka, numbers
from highwater.cluster.processes.zookeeper_process import find_java
from highwater.maven import Artifact, FetchError, cache_dir, fetch_jars

VERSION = "3.9.2"
CLIENT_VERSION = "4.2.0"
"""The Java client of workloads: since 4.0 it speaks transaction.version 2."""
SERVER_JVM = (
    "-server",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""The flags of Kafka's own start script; a broker's speed depends on the garbage collector."""
_LOGGING = Artifact("org.slf4j", "slf4j-reload4j", "1.7.36")
_LATER_ZOOKEEPER = Artifact("org.apache.zookeeper", "zookeeper", "3.5.10")
"""The ZooKeeper client for releases before 2.6.  Theirs takes the `<unresolved>` that Java 14 and
later append to a host name for a part of it (ZOOKEEPER-3779).  This version of the same line does
not, and does not bring log4j 1.2.17, whose MDC does not load on Java 9 and later."""
_QUIET_LOG4J = """\
log4j.rootLogger=WARN, E
log4j.appender.E=org.apache.log4j.ConsoleAppender
log4j.appender.E.target=System.err
log4j.appender.E.layout=org.apache.log4j.SimpleLayout
"""


def artifacts(version: str) -> tuple[Artifact, ...]:
    """The jars that run a broker of this release; for the default release, also its tools' jars."""
    broker = Artifact("org.apache.kafka", "kafka_2.13", version)
    if version == VERSION:
        return (broker, Artifact("org.apache.kafka", "kafka-tools", version), _LOGGING)
    if numbers(version) < (2, 6):
        return (broker, _LATER_ZOOKEEPER, _LOGGING)
    return (broker, _LOGGING)


def home(version: str = VERSION) -> Path:
    """The folder of a release's `libs`; fetches missing ones."""
    chosen = os.environ.get("HIGHWATER_APACHE_KAFKA_HOME")
    if chosen and version == VERSION:
        if not any(Path(chosen).glob("libs/kafka_2.1*.jar")):
            raise StartError(
                f"HIGHWATER_APACHE_KAFKA_HOME is {chosen}, but {chosen}/libs holds no Kafka jars"
            )
        return Path(chosen)
    folder = cache_dir() / f"apache-kafka-{version}"
    try:
        fetch_jars(f"Apache Kafka {version}", artifacts(version), folder / "libs")
    except FetchError as error:
        raise StartError(str(error)) from error
    return folder


def tool_jars(version: str = VERSION) -> Path:
    """The folder of the jars of a release's command-line tools; fetches missing ones.  Until 3.9
    they are among the broker's jars; those of 4 are apart from them, with all that they need."""
    if numbers(version) < (4, 0):
        return home(version) / "libs"
    wanted = (*artifacts(version), Artifact("org.apache.kafka", "kafka-tools", version))
    folder = cache_dir() / f"kafka-tools-{version}"
    try:
        fetch_jars(f"Kafka's tools {version}", wanted, folder)
    except FetchError as error:
        raise StartError(str(error)) from error
    return folder


def client_jars(version: str = CLIENT_VERSION) -> Path:
    """The folder of the Java client's jars; fetches missing ones."""
    artifacts = (Artifact("org.apache.kafka", "kafka-clients", version), _LOGGING)
    folder = cache_dir() / f"kafka-clients-{version}"
    try:
        fetch_jars(f"Kafka's Java client {version}", artifacts, folder)
    except FetchError as error:
        raise StartError(str(error)) from error
    return folder


def program() -> ApacheKafka:
    """Apache Kafka as it would run on a server, for the process runtime."""
    return ApacheKafka(home(), jvm=SERVER_JVM)


def tool(
    main_class: str,
    arguments: Sequence[str],
    *,
    timeout_s: float = 60,
    stdin: str = "",
    version: str = VERSION,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's own command-line classes, such as org.apache.kafka.tools.TopicCommand."""
    with tempfile.TemporaryDirectory() as work:
        log4j = Path(work) / "log4j.properties"
        log4j.write_text(_QUIET_LOG4J)
        return subprocess.run(
            [
                find_java(),
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                f"-Dlog4j.configuration=file:{log4j}",
                "-cp",
                f"{tool_jars(version)}/*",
                main_class,
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


if __name__ == "__main__":
    try:
        print(home())
    except StartError as error:
        sys.exit(f"apache-kafka: {error}")
