"""A real ZooKeeper without an installation: its jars and its start.

The jars come from the first of these: the setting HIGHWATER_ZOOKEEPER_HOME (a folder with
ZooKeeper's jars, or an unpacked release), the project's cache, the jars that PySpark ships, and
`mvn`, which fetches the few jars into the cache.  Only the needed jars go on the class path:
opening all 250 of Spark's takes half the start-up time.

It does not wait for the disk (zookeeper.forceSync=no, as in Apache Kafka's own tests).  It is
killed with its processes, whose writes the kernel keeps, and not by a power loss; and brokers that
write gigabytes beside it would hold up its first answer for longer than a session lasts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from highwater.child_processes import StartError

ZOOKEEPER_VERSION = "3.9.3"
_NEEDED = (
    "zookeeper-3*", "zookeeper-jute-3*", "log4j-api-2*", "log4j-core-2*", "log4j-slf4j2-impl-*",
    "slf4j-api-*", "logback-core-*", "logback-classic-*", "metrics-core-*", "snappy-java-*",
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


def cache_dir() -> Path:
    """The project's cache: HIGHWATER_CACHE, else highwater in XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("HIGHWATER_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highwater"


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
    """The class path of ZooKeeper's jars in a folder, or in its `lib`; None without them."""
    for place in (folder, folder / "lib"):
        jars = sorted({jar for pattern in _NEEDED for jar in place.glob(pattern + ".jar")})
        names = [jar.name for jar in jars]
        if any(n.startswith("zookeeper-3") for n in names) and any("slf4j-api" in n for n in names):
            return os.pathsep.join(map(str, jars))
    return None


def find_jars(env: Mapping[str, str] = os.environ) -> ZooKeeperJars:
    """ZooKeeper's jars, in the module docstring's order of search."""
    if setting := env.get("HIGHWATER_ZOOKEEPER_HOME"):
        if path := _jars_in(Path(setting)):
            return ZooKeeperJars(path, f"HIGHWATER_ZOOKEEPER_HOME ({setting})")
        raise StartError(f"HIGHWATER_ZOOKEEPER_HOME is {setting}, which holds no ZooKeeper jars")
    cached = cache_dir() / f"zookeeper-{ZOOKEEPER_VERSION}"
    if path := _jars_in(cached):
        return ZooKeeperJars(path, str(cached))
    spec = importlib.util.find_spec("pyspark")
    for place in list(spec.submodule_search_locations or ()) if spec else []:
        if path := _jars_in(Path(place) / "jars"):
            return ZooKeeperJars(path, f"PySpark ({place}/jars)")
    if shutil.which("mvn", path=env.get("PATH")):
        _fetch_by_maven(cached)
        if path := _jars_in(cached):
            return ZooKeeperJars(path, str(cached))
    raise StartError(
        "no ZooKeeper found: install highwater-kafka[spark] (PySpark ships its jars), or Maven,"
        " or set HIGHWATER_ZOOKEEPER_HOME to an unpacked ZooKeeper release"
    )


_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>highwater</groupId><artifactId>zookeeper</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId>
<version>{ZOOKEEPER_VERSION}</version></dependency>
<dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId>
<version>4.1.12.1</version></dependency>
<dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId>
<version>1.1.10.5</version></dependency></dependencies></project>
"""


def _fetch_by_maven(target: Path) -> None:
    """Fetches ZooKeeper's few jars into the cache; another process may do so at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        (Path(work) / "pom.xml").write_text(_POM)
        command = ["mvn", "-q", "-B", "-f", f"{work}/pom.xml"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        done = subprocess.run(command + goal, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise StartError(f"mvn could not fetch ZooKeeper: {lines[0] if lines else done.stderr}")
        try:
            os.rename(f"{work}/jars", target)
        except OSError:
            if _jars_in(target) is None:
                raise


def prepare(folder: Path, port: int, tick_ms: int) -> list[str]:
    """Writes the configuration into `folder`; returns the command that starts ZooKeeper there."""
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
        "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.forceSync=no",
        "-cp",
        jars.class_path,
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(folder / "zoo.cfg"),
    ]


def answers(port: int) -> bool:
    """Whether ZooKeeper serves: its `srvr` command tells a mode."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            sock.sendall(b"srvr")
            sock.settimeout(1)
            data = b""
            while chunk := sock.recv(4096):
                data += chunk
    except OSError:
        return False
    return b"Mode:" in data
