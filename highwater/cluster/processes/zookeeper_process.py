"""Starts a ZooKeeper that needs no installation: Java's, from its jars, or Highwater's own.

The jars come from the first of these: the setting HIGHWATER_ZOOKEEPER_HOME (a folder with
ZooKeeper's jars, or an unpacked release), the project's cache, `mvn`, which fetches them into the
cache, and the jars that PySpark ships.  Only the needed jars go on the class path: opening all 250
of Spark's takes half the start-up time.

By default it does not wait for the disk (zookeeper.forceSync=no, as in Apache Kafka's own tests).
Here ZooKeeper dies by a kill, after which the kernel keeps its writes, and not by a power loss; and
brokers that write gigabytes to the same disk would delay its first answer for longer than a session
lasts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from highwater import late_setup
from highwater.child_processes import StartError
from highwater.cluster.processes.zookeeper_choice import EMBEDDED, JAVA
from highwater.cluster.processes.zookeeper_jars import ARTIFACTS, cached, fetch
from highwater.maven import FetchError, has_jars

_NEEDED = (
    "zookeeper-3*", "zookeeper-jute-3*", "log4j-api-2*", "log4j-core-2*", "log4j-slf4j2-impl-*",
    "slf4j-api-*", "slf4j-simple-*", "logback-core-*", "logback-classic-*", "metrics-core-*",
    "snappy-java-*",
    "netty-common-4*", "netty-handler-4*", "netty-transport-4*", "netty-buffer-4*",
    "netty-codec-4*",
    "netty-resolver-4*", "audience-annotations-*",
)  # fmt: skip
_LOG4J2 = """\
status = error
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d{ISO8601} %p %m%n
rootLogger.level = info
rootLogger.appenderRef.c.ref = C
"""
NO_JAVA = "no Java found: install Java 17 or later and set JAVA_HOME, or put java on PATH"


@dataclass(frozen=True, slots=True)
class ZooKeeperJars:
    class_path: str
    where: str


def find_java(env: Mapping[str, str] = os.environ) -> str:
    """The java program of JAVA_HOME, or of PATH; StartError with the remedy where there is none."""
    if home := env.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise StartError(f"JAVA_HOME is {home}, but {java} is no program: correct JAVA_HOME")
        return str(java)
    found = shutil.which("java", path=env.get("PATH"))
    if found is None:
        raise StartError(NO_JAVA)
    return found


def _jars_in(folder: Path) -> str | None:
    """The class path of ZooKeeper's jars in a folder or in its `lib`; None if there are none."""
    for place in (folder, folder / "lib"):
        jars = sorted({jar for pattern in _NEEDED for jar in place.glob(pattern + ".jar")})
        names = [jar.name for jar in jars]
        if any(n.startswith("zookeeper-3") for n in names) and any("slf4j-api" in n for n in names):
            return os.pathsep.join(map(str, jars))
    return None


def find_jars(env: Mapping[str, str] = os.environ) -> ZooKeeperJars:
    """ZooKeeper's jars, from the first of the places that the module's docstring lists."""
    if setting := env.get("HIGHWATER_ZOOKEEPER_HOME"):
        if path := _jars_in(Path(setting)):
            return ZooKeeperJars(path, f"HIGHWATER_ZOOKEEPER_HOME ({setting})")
        raise StartError(f"HIGHWATER_ZOOKEEPER_HOME is {setting}, which holds no ZooKeeper jars")
    if has_jars(ARTIFACTS, cached()):
        return _whole(cached())
    if problem := _not_fetched(env):
        by_half = late_setup.spark_is_there_by_half()
        spec = None if by_half else importlib.util.find_spec("pyspark")
        for package in list(spec.submodule_search_locations or ()) if spec else []:
            if path := _jars_in(Path(package) / "jars"):
                return ZooKeeperJars(path, f"PySpark ({package}/jars)")
        raise StartError(f"{problem}, or set HIGHWATER_ZOOKEEPER_HOME to a ZooKeeper release")
    return _whole(cached())


def _whole(folder: Path) -> ZooKeeperJars:
    return ZooKeeperJars(os.pathsep.join(str(folder / a.jar) for a in ARTIFACTS), str(folder))


def _not_fetched(env: Mapping[str, str]) -> str:
    """Fetches the jars into the cache; gives the reason where that fails."""
    try:
        fetch(env)
    except FetchError as error:
        return str(error)
    return ""


def for_a_proof(asked: str) -> str:
    """The kind of ZooKeeper that is asked for; else Java's if this machine can run it, because a
    proof should rest on the real server; else Highwater's."""
    if asked:
        return asked
    try:
        find_java(), find_jars()
    except StartError:
        return EMBEDDED
    return JAVA


def start_of(kind: str, folder: Path, port: int, tick_ms: int, sync: bool = False) -> list[str]:
    """The command that starts a ZooKeeper of this kind in `folder`; with `sync` its writes are on
    the disk itself before they are answered."""
    if kind == JAVA:
        try:
            return prepare(folder, port, tick_ms, sync)
        except StartError as error:
            remedy = "use --zookeeper embedded"
            if (folder / "data" / "version-2").exists():
                remedy = (
                    f"take its data over (highwater zookeeper import {folder.parent}), or delete"
                    " the cluster (highwater down --delete)"
                )
            raise StartError(f"ZooKeeper's own server: {error}; or {remedy}") from None
    words = ["--data", str(folder / "data"), "--port", str(port), "--tick", str(tick_ms)]
    words += ["--sync"] * sync
    optimized = ["-O"] * bool(sys.flags.optimize)  # without assertions, as for a broker
    return [sys.executable, *optimized, "-I", "-m", "highwater.zookeeper", *words]


def prepare(folder: Path, port: int, tick_ms: int, sync: bool = False) -> list[str]:
    """Writes the configuration into `folder`; returns the command that starts Java's there."""
    java, jars = find_java(), find_jars()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOG4J2)
    (folder / "zoo.cfg").write_text(
        f"tickTime={tick_ms}\ndataDir={folder / 'data'}\nclientPort={port}\n"
        "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
        "4lw.commands.whitelist=*\nautopurge.purgeInterval=1\n"
    )
    return [
        java,
        "-Xmx192m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss,SSS",
        "-Dorg.slf4j.simpleLogger.showThreadName=false",
        "-Dzookeeper.admin.enableServer=false",
        f"-Dzookeeper.forceSync={'yes' if sync else 'no'}",
        "-cp",
        jars.class_path,
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(folder / "zoo.cfg"),
    ]


def accepts(host: str, port: int, timeout_s: float = 5.0) -> bool:
    """Whether something accepts connections at this address."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether ZooKeeper serves: the answer to its command `srvr` has a mode.

    A command that arrives while ZooKeeper is just starting may never be answered.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
            sock.sendall(b"srvr")
            data = b""
            while chunk := sock.recv(4096):
                data += chunk
    except OSError:
        return False
    return b"Mode:" in data
