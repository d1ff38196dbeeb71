"""One of Java's share consumers, as a process that says what it gets (ShareMember.java)."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from highwater.cluster.processes import apache
from highwater.cluster.processes.zookeeper_process import find_java

SOURCE = Path(__file__).with_name("ShareMember.java")
JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG4J = """\
log4j.rootLogger=WARN, E
log4j.appender.E=org.apache.log4j.ConsoleAppender
log4j.appender.E.target=System.err
log4j.appender.E.layout=org.apache.log4j.SimpleLayout
"""


def group_of(topic: str) -> str:
    return f"group-of-{topic}"


class Member:
    """One of Java's share consumers; `events` are what it has said."""

    def __init__(self, folder: Path, servers: str, topic: str, name: str, mode: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.log = folder / f"{topic}-{name}.log"
        self._errors = self.log.open("wb")
        quiet = folder / "log4j.properties"
        quiet.write_text(LOG4J)
        jars = apache.client_jars("4.2.0")
        options = [*JVM, f"-Dlog4j.configuration=file:{quiet}", "-cp", f"{jars}/*"]
        self._process = subprocess.Popen(
            [find_java(), *options, str(SOURCE), servers, group_of(topic), topic, name, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["event"] in kinds]

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()[-3000:]
        return bool(self.of("ready"))

    def becomes(self, mode: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{mode}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends it, and waits until it has left the group."""
        self.becomes("stop")
        assert self._process.wait(60) == 0, self.log.read_text()[-3000:]
        self._reader.join()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
