"""The broker programs: Highwater, or Apache Kafka (the oracle), with the same properties.

Both read one server.properties, so that every verb, fault and check of the harness works on either:
a check that Apache Kafka does not pass is wrong, or a finding.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from highwater.child_processes import StartError
from highwater.cluster.processes.zookeeper_process import find_java

RELEASE_SESSION_MS = "6000"
"""The session timeout of Apache's releases in the profile `test`.  A JVM has been seen to stand
still for three seconds when it starts on a busy machine, and a broker ends if its session expires
while it starts."""


class Program(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def registration_refused(self) -> str:
        """Text in the output of a broker that ended because its killed predecessor's znode was
        still there."""

    @property
    def kraft(self) -> bool:
        """Whether it runs without ZooKeeper."""

    @property
    def apart(self) -> bool:
        """Whether its controllers, in KRaft mode, are processes of their own."""

    def format_command(self, properties: Path, cluster_id: str) -> list[str]:
        """The command that makes a KRaft broker's storage before its first start."""

    def prepare(self, folder: Path, brokers: int, profile: str) -> dict[str, str]:
        """Writes its own files into the broker's folder; returns further properties."""

    def command(self, properties: Path, profile: str) -> list[str]: ...

    def environment(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class Highwater:
    """`python -I -m highwater.broker`: -I, so that no module of the user's folder interferes.

    `source` runs the broker from another copy of the source (a test's mutant) instead of the
    installed one.
    """

    source: Path | None = None
    name: str = "highwater"
    registration_refused: str = "is registered by"
    kraft: bool = False
    apart: bool = False

    def format_command(self, properties: Path, cluster_id: str) -> list[str]:
        raise AssertionError("Highwater's brokers need ZooKeeper")

    def prepare(self, folder: Path, brokers: int, profile: str) -> dict[str, str]:
        return {}

    def command(self, properties: Path, profile: str) -> list[str]:
        arguments = ["--config", str(properties), "--profile", profile]
        if self.source is None:
            # pass it on: -I hides PYTHONOPTIMIZE, which leaves the assertions out
            optimized = ["-O"] * bool(sys.flags.optimize)
            return [sys.executable, *optimized, "-I", "-m", "highwater.broker", *arguments]
        start = (
            f"import sys, runpy; sys.path.insert(0, {str(self.source)!r});"
            "runpy.run_module('highwater.broker', run_name='__main__', alter_sys=True)"
        )
        # -O leaves the assertions out: a mutant is to be found from outside
        return [sys.executable, "-O", "-I", "-c", start, *arguments]

    def environment(self) -> dict[str, str]:
        return {**_without_kafka_variables(), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """kafka.Kafka from the jars of a release (`home` holds `libs`), with ZooKeeper or without."""

    home: Path
    name: str = "apache"
    jvm: tuple[str, ...] = ("-Xmx640m", "-XX:+UseSerialGC")
    """The flags of a JVM that is small and quick to start.  It has room for the old and the new
    128 MiB of a log cleaner that is restarted; if that failed, Kafka's thread for configuration
    changes would end.  `apache.SERVER_JVM` has the flags of Kafka's own start script."""
    registration_refused: str = "NodeExistsException"
    version: str = ""
    """The release; empty if it is not known, as for a folder of jars."""
    kraft: bool = False
    apart: bool = False

    def format_command(self, properties: Path, cluster_id: str) -> list[str]:
        words = ["format", "--cluster-id", cluster_id, "--config", str(properties)]
        return self._java(properties, "kafka.tools.StorageTool", *words)

    def prepare(self, folder: Path, brokers: int, profile: str) -> dict[str, str]:
        from highwater.kafka.config.sources import profile_properties

        if not (self.home / "libs").is_dir():
            raise StartError(f"no Apache Kafka in {self.home}: scripts/apache-kafka fetches it")
        (folder / "log4j.properties").write_text(
            "log4j.rootLogger=INFO, C\nlog4j.appender.C=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.C.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.C.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        further = profile_properties(profile, brokers)
        if self.version and (own := numbers(self.version)) < (2, 6):
            further["inter.broker.protocol.version"] = ".".join(map(str, own[:2]))
        if self.version and profile == "test":
            further["zookeeper.session.timeout.ms"] = RELEASE_SESSION_MS
        others = "zookeeper." if self.kraft else ("group.share.", "share.")
        further = {k: v for k, v in further.items() if not k.startswith(others)}
        if self.kraft:
            from highwater.cluster.processes.server_properties import KRAFT_TEST

            further |= KRAFT_TEST if profile == "test" else {}
        return further

    def command(self, properties: Path, profile: str) -> list[str]:
        return self._java(properties, "kafka.Kafka", str(properties))

    def _java(self, properties: Path, main_class: str, *words: str) -> list[str]:
        return [
            find_java(),
            *self.jvm,
            f"-Dlog4j.configuration=file:{properties.parent / 'log4j.properties'}",
            "-cp",
            f"{self.home}/libs/*",
            main_class,
            *words,
        ]

    def environment(self) -> dict[str, str]:
        return _without_kafka_variables()


def numbers(version: str) -> tuple[int, ...]:
    """
    >>> numbers("3.9.2")
    (3, 9, 2)
    """
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _without_kafka_variables() -> dict[str, str]:
    """The environment without variables that a broker would take for properties of its own."""
    return {k: v for k, v in os.environ.items() if not k.startswith("KAFKA_")}
