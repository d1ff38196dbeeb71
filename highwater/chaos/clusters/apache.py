"""Apache Kafka in ZooKeeper mode, as processes on 127.0.0.1: the benchmark's yardstick, an oracle.

3.9 is the last line that runs with ZooKeeper.  The jars come from Maven into the project's cache,
once; ZooKeeper runs from the same jars.  The JVM's flags are those of Kafka's own start script (G1,
20 ms pauses), because they decide its speed; its logs go to files, and its properties are Kafka's
defaults but for what a cluster on one machine needs.

`python -m highwater.chaos.clusters.apache` is the command line of scripts/apache-kafka.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from highwater.chaos.clusters.maven import Artifact, fetch_jars
from highwater.chaos.clusters.ports import PortInUse, free_ports, require_free
from highwater.chaos.clusters.probe import wait_for_cluster
from highwater.chaos.clusters.processes import Child, Pid, StartError
from highwater.chaos.clusters.zookeeper import answers, cache_dir, find_java

VERSION = "3.9.2"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_LOG4J = """\
log4j.rootLogger={level}, F
log4j.appender.F=org.apache.log4j.{appender}
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
DEFAULT_PORT = 19092


def jars() -> Path:
    """Where Apache Kafka's jars are; fetched where they are not there yet."""
    if home := os.environ.get("HIGHWATER_APACHE_KAFKA_HOME"):
        folder = Path(home) / "libs"
        if not any(folder.glob("kafka_2.1*.jar")):
            raise StartError(
                f"HIGHWATER_APACHE_KAFKA_HOME is {home}, but {folder} holds no Kafka jars"
            )
        return folder
    folder = cache_dir() / f"apache-kafka-{VERSION}" / "libs"
    fetch_jars(f"Apache Kafka {VERSION}", _ARTIFACTS, folder)
    return folder


def _log4j(folder: Path, level: str = "INFO", *, to_file: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "log4j.properties"
    text = _LOG4J.format(level=level, appender="FileAppender" if to_file else "ConsoleAppender")
    target = f"File={folder / 'server.log'}" if to_file else "Target=System.err"
    path.write_text(text + f"log4j.appender.F.{target}\n")
    return path


def java_command(
    main_class: str, log4j: Path, arguments: Sequence[str], heap_mib: int = 512
) -> list[str]:
    return [
        find_java(),
        *_JVM,
        f"-Xmx{heap_mib}m",
        f"-Dlog4j.configuration=file:{log4j}",
        "-cp",
        f"{jars()}/*",
        main_class,
        *arguments,
    ]


def tool(
    main_class: str, arguments: Sequence[str], *, timeout_s: float = 60, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's own command-line classes, such as org.apache.kafka.tools.TopicCommand."""
    with tempfile.TemporaryDirectory() as work:
        command = java_command(
            main_class, _log4j(Path(work), "WARN", to_file=False), arguments, 256
        )
        return subprocess.run(
            command,
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


class ApacheCluster:
    """ZooKeeper and N brokers, all of Apache Kafka; `start` returns when each of them serves."""

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        *,
        ports: Sequence[int] = (),
        zookeeper_port: int | None = None,
        zookeeper_session_ms: int = 18000,
        heap_mib: int = 512,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        fresh = free_ports(brokers + 1)
        self.ports = tuple(ports) or tuple(fresh[:brokers])
        self.zookeeper_port = zookeeper_port or fresh[-1]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.ready_s = 0.0
        self._session_ms = zookeeper_session_ms
        self._heap_mib = heap_mib
        self._properties = dict(properties or {})
        self._children: dict[str, Child] = {}

    def start(self, timeout_s: float = 90) -> None:
        for port in self.ports:
            require_free(port, "a broker's", "stop what listens there, or choose another port")
        require_free(self.zookeeper_port, "ZooKeeper's", "stop what listens there")
        jars()  # fetching them is not start-up time
        began = time.monotonic()
        try:
            self._start_zookeeper()
            for broker_id in range(1, len(self.ports) + 1):
                self.start_broker(broker_id)
            wait_for_cluster(
                [("127.0.0.1", port) for port in self.ports], timeout_s, self._still_running
            )
        except BaseException as error:
            self.stop()
            if isinstance(error, TimeoutError):
                raise StartError(f"Apache Kafka: {error}; logs are in {self.folder}") from error
            raise
        self.ready_s = time.monotonic() - began

    def _still_running(self) -> None:
        for child in self._children.values():
            if not child.running:
                raise StartError(f"{child.name} ended: {child.last_words()} (logs: {self.folder})")

    def _start_zookeeper(self) -> None:
        folder = self.folder / "zookeeper"
        log4j = _log4j(folder)
        # ZooKeeper grants sessions of 2 to 20 ticks
        tick_ms = 3000 if self._session_ms >= 6000 else self._session_ms // 2
        (folder / "zoo.cfg").write_text(
            f"dataDir={folder / 'data'}\nclientPort={self.zookeeper_port}\n"
            f"clientPortAddress=127.0.0.1\nmaxClientCnxns=0\ntickTime={tick_ms}\n"
            "admin.enableServer=false\n4lw.commands.whitelist=*\n"
        )
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._run("zookeeper", folder, main_class, log4j, [str(folder / "zoo.cfg")])

    def start_broker(self, broker_id: int) -> None:
        folder = self.folder / f"broker-{broker_id}"
        log4j = _log4j(folder)
        properties = folder / "server.properties"
        properties.write_text(self.server_properties(broker_id))
        self._run(f"broker-{broker_id}", folder, "kafka.Kafka", log4j, [str(properties)])

    def server_properties(self, broker_id: int) -> str:
        replicas = min(3, len(self.ports))
        in_sync = min(2, replicas)
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[broker_id - 1]}"
        properties = {
            "broker.id": broker_id,
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            "zookeeper.session.timeout.ms": self._session_ms,
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": self.folder / f"broker-{broker_id}" / "data",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": 0,
            **self._properties,
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())

    def _run(
        self, name: str, folder: Path, main_class: str, log4j: Path, arguments: Sequence[str]
    ) -> None:
        command = java_command(main_class, log4j, arguments, self._heap_mib)
        # Where the class path is wrong, the JVM says so on its output and not in a log.
        self._children[name] = Child(
            f"Apache Kafka's {name}", command, output=folder / "stdout", cwd=folder
        )

    def broker_pid(self, broker_id: int) -> int:
        return self._children[f"broker-{broker_id}"].popen.pid

    def zookeeper_answers(self) -> bool:
        return answers(self.zookeeper_port)

    def stop(self) -> None:
        """Ends all processes at once: their data is of no further use."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)
        for child in self._children.values():
            child.wait(10)
        self._children.clear()


# ---- scripts/apache-kafka ---------------------------------------------------------------------


def _run_folder() -> Path:
    return cache_dir() / "apache-kafka-run"


def _up(arguments: argparse.Namespace) -> int:
    folder = _run_folder()
    if _supervisor() is not None:
        raise StartError("it runs already: scripts/apache-kafka down ends it")
    if arguments.detach:
        return _detach(arguments)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "supervisor").write_text(Pid.of(os.getpid()).started + f" {os.getpid()}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    extra = dict(entry.split("=", 1) for entry in arguments.property)
    ports = range(arguments.port, arguments.port + arguments.brokers)
    cluster = ApacheCluster(
        folder,
        arguments.brokers,
        ports=ports,
        zookeeper_session_ms=arguments.session_ms,
        properties=extra,
    )
    try:
        cluster.start()
        print(f"ready after {cluster.ready_s:.1f} s: {cluster.bootstrap}", flush=True)
        print(f"data and logs: {folder}; Ctrl-C or `scripts/apache-kafka down` ends it", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()
        (folder / "supervisor").unlink(missing_ok=True)
    return 0


def _detach(arguments: argparse.Namespace) -> int:
    output = cache_dir() / "apache-kafka-run.log"
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __spec__.name, *(a for a in sys.argv[1:] if a != "--detach")]
    with output.open("wb") as sink:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    while child.poll() is None:
        if b"Ctrl-C" in (said := output.read_bytes()):
            print(said.decode().splitlines()[0])
            return 0
        time.sleep(0.1)
    print(output.read_text().strip(), file=sys.stderr)
    return child.returncode or 1


def _supervisor() -> Pid | None:
    try:
        started, _, number = (_run_folder() / "supervisor").read_text().partition(" ")
    except OSError:
        return None
    pid = Pid(int(number), started)
    return pid if pid.alive() else None


def _down(arguments: argparse.Namespace) -> int:
    if pid := _supervisor():
        pid.end(grace_s=15)
    if not arguments.keep:
        shutil.rmtree(_run_folder(), ignore_errors=True)
    return 0


def _fetch(_arguments: argparse.Namespace) -> int:
    print(jars())
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/apache-kafka",
        description=f"Apache Kafka {VERSION} in ZooKeeper mode on 127.0.0.1, to compare with.",
        epilog="example: scripts/apache-kafka up --detach && kcat -L -b 127.0.0.1:19092",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    fetch = commands.add_parser("fetch", help="fetch the jars by Maven, and print their folder")
    fetch.set_defaults(run=_fetch)
    up = commands.add_parser("up", help="start ZooKeeper and brokers; Ctrl-C ends them")
    up.add_argument("--brokers", type=int, default=3)
    up.add_argument("--port", type=int, default=DEFAULT_PORT, help="the first broker's port")
    up.add_argument("--session-ms", type=int, default=18000, help="zookeeper.session.timeout.ms")
    up.add_argument("--property", action="append", default=[], metavar="NAME=VALUE")
    up.add_argument("--detach", action="store_true", help="return when they are ready")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="end what `up` started, and remove its data")
    down.add_argument("--keep", action="store_true", help="keep data and logs")
    down.set_defaults(run=_down)
    arguments = parser.parse_args()
    try:
        return int(arguments.run(arguments))
    except (StartError, PortInUse) as error:
        print(f"apache-kafka: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
