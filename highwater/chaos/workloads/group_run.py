"""Runs consumer groups, whose members are processes that join, leave and crash.

A `GroupRun` is one group on one topic.  Each member writes a file of its own (`group_member`; for
Java's members, which print, a thread writes it), so that kill -9 loses no earlier event.  `collect`
merges the files, in the order of their clock, into one history.jsonl for the checks G2, G3 and G4.
"""

from __future__ import annotations

import json
import linecache
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from highwater.chaos.workloads.group_member import Member
from highwater.client_calls import ClientHangs
from highwater.cluster.client_files import Way
from highwater.cluster.processes import apache
from highwater.cluster.processes.zookeeper_process import find_java

JAVA = "java"
END_S = 30
_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"


@dataclass
class Running:
    """One member's process."""

    member: Member
    process: subprocess.Popen[bytes]
    reader: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@dataclass
class GroupRun:
    """Members of one group, by number."""

    folder: Path
    way: Way
    """How its members connect; Java's members can do so only without security."""
    group: str
    topic: str
    client: str
    session_ms: int = 6000
    protocol: str = "classic"
    members: dict[int, Running] = field(default_factory=dict)
    _count: int = 0

    def join(self) -> int:
        """Starts one more member; gives its number."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._count += 1
        number = self._count
        name = f"{self.group}-{number}"
        member = Member(
            **asdict(self.way),
            client=self.client,
            process=name,
            group=self.group,
            topic=self.topic,
            out=str(self.folder / f"{name}.jsonl"),
            session_ms=self.session_ms,
            protocol=self.protocol,
        )
        if self.client == JAVA:
            self.members[number] = self._java(member)
        else:
            settings = self.folder / f"{name}.settings.json"
            settings.write_text(json.dumps(asdict(member)), encoding="utf-8")
            command = [sys.executable, "-I", "-m", "highwater.chaos.workloads.group_member"]
            self.members[number] = Running(member, self._start([*command, str(settings)], member))
        return number

    def _start(self, command: list[str], member: Member, out: int | None = None) -> Any:
        with Path(member.out).with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log if out is None else out, stderr=log
            )

    def _java(self, member: Member) -> Running:
        assert member.security == "plaintext", "VerifiableConsumer is given no login"
        log4j = self.folder / "log4j.properties"
        log4j.write_text(
            "log4j.rootLogger=WARN, E\nlog4j.appender.E=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.E.target=System.err\n"
            "log4j.appender.E.layout=org.apache.log4j.SimpleLayout\n"
        )
        by_protocol = {
            "classic": [
                "--session-timeout", str(member.session_ms),
                "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
            ],
            "consumer": ["--group-protocol", "consumer"],
        }  # fmt: skip
        command = [
            find_java(), "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{apache.home()}/libs/*", _CONSUMER,
            "--bootstrap-server", member.bootstrap, "--topic", member.topic,
            "--group-id", member.group, "--reset-policy", "earliest", "--verbose",
            *by_protocol[member.protocol],
        ]  # fmt: skip
        process = self._start(command, member, subprocess.PIPE)
        reader = threading.Thread(target=_write_down, args=(process.stdout, member), daemon=True)
        reader.start()
        return Running(member, process, reader)

    def leave(self, number: int) -> None:
        """Makes the member leave its group and end; raises ClientHangs where it does not."""
        running = self.members.pop(number)
        running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(END_S)
        except subprocess.TimeoutExpired:
            java = running.member.client == JAVA  # an aborted JVM would leave a core file
            running.process.send_signal(signal.SIGKILL if java else signal.SIGABRT)
            running.process.wait()
            told = f"{running.member.process} has not left its group within {END_S} s"
            raise ClientHangs(f"{told}{_stood_in(running.member)}") from None
        finally:
            self._read_to_the_end(running)

    def crash(self, number: int) -> None:
        """Kills the member by SIGKILL."""
        running = self.members.pop(number)
        running.process.kill()
        running.process.wait()
        self._read_to_the_end(running)

    def end(self) -> None:
        for number in list(self.members):
            self.crash(number)

    def _read_to_the_end(self, running: Running) -> None:
        if running.reader is not None:
            running.reader.join(END_S)

    def dead(self) -> list[str]:
        """Members that ended unasked, and their last words."""
        return [
            f"{r.member.process} ended with {r.process.returncode}: "
            + Path(r.member.out).with_suffix(".log").read_text(errors="replace")[-500:]
            for r in self.members.values()
            if not r.alive
        ]

    # ------------------------------------------------------------------------- what they say

    def lines(self) -> list[dict[str, Any]]:
        """All members' lines, in the order of the clock; operations are numbered as one series."""
        found = []
        for number, path in enumerate(sorted(self.folder.glob(f"{self.group}-*.jsonl"))):
            for line in _whole_lines(path):
                for name in ("op", "poll_id"):
                    if name in line:
                        line[name] += number * 10_000_000
                found.append(line)
        return sorted(found, key=lambda line: int(line["t_ns"]))

    def owners(self) -> dict[int, str]:
        """The running member to which each partition was last assigned."""
        found: dict[int, tuple[int, str]] = {}
        for running in self.members.values():
            own: dict[int, int] = {}
            for line in _whole_lines(Path(running.member.out)):
                if line["f"] == "assigned_all":
                    own = dict.fromkeys(line["partitions"], line["t_ns"])
            for partition, t_ns in own.items():
                if t_ns > found.get(partition, (0, ""))[0]:
                    found[partition] = (t_ns, running.member.process)
        return {partition: process for partition, (_, process) in sorted(found.items())}


def _stood_in(member: Member) -> str:
    """The line of the member's program at which it was aborted, from faulthandler's output."""
    log = Path(member.out).with_suffix(".log").read_text(errors="replace")
    found = re.search(r'File "(.*/group_member\.py)", line (\d+)', log.rpartition("Fatal")[2])
    if found is None:
        return ""
    return f": it is in {linecache.getline(found[1], int(found[2])).strip()}"


def collect(run: Path, groups: list[GroupRun]) -> int:
    """Writes RUN/history.jsonl and run.json; gives the number of lines."""
    run.mkdir(parents=True, exist_ok=True)
    count = 0
    with (run / "history.jsonl").open("w", encoding="utf-8") as out:
        for number, group in enumerate(groups):
            for line in group.lines():
                if line["f"] in ("assigned_all", "leaving"):
                    continue  # a line for the harness, which is no part of the history
                for name in ("op", "poll_id"):
                    if name in line:
                        line[name] += number * 1_000_000_000
                out.write(json.dumps({"run": "groups", "seed": 0, "index": count, **line}) + "\n")
                count += 1
    info = {"run": "groups", "topics": [{"name": t} for t in sorted({g.topic for g in groups})]}
    (run / "run.json").write_text(json.dumps(info), encoding="utf-8")
    return count


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # a killed member's last line may be torn
            yield json.loads(line)


# -------------------------------------------------------------------------------- Java's members


def _write_down(source: IO[bytes], member: Member) -> None:
    """Converts VerifiableConsumer's lines to the history's, until it ends."""
    operations = 0
    owned: set[int] = set()
    with Path(member.out).open("a", encoding="utf-8", buffering=1) as out:

        def write(f: str, type_: str, **fields: Any) -> None:
            line = {
                "process": member.process, "client": JAVA, "f": f, "type": type_,
                "t_ns": time.monotonic_ns(), "topic": member.topic, **fields,
            }  # fmt: skip
            if f != "poll":
                line["group_id"] = member.group
            out.write(json.dumps(line) + "\n")

        for raw in source:
            try:
                said = json.loads(raw)
            except ValueError:
                continue
            operations += 1
            _TRANSLATIONS.get(said.get("name", ""), _nothing)(said, write, operations, owned)


Write = Callable[..., None]


def _nothing(said: dict[str, Any], write: Write, op: int, owned: set[int]) -> None: ...


def _assigned(said: dict[str, Any], write: Write, op: int, owned: set[int]) -> None:
    partitions = sorted(place["partition"] for place in said["partitions"])
    for partition in partitions:
        write("assign", "ok", partition=partition)
    owned.update(partitions)
    write("assigned_all", "ok", partitions=sorted(owned))


def _revoked(said: dict[str, Any], write: Write, op: int, owned: set[int]) -> None:
    owned.difference_update(place["partition"] for place in said["partitions"])


def _record(said: dict[str, Any], write: Write, op: int, owned: set[int]) -> None:
    write(
        "poll", "ok", op=op, poll_id=op, n=1, partition=said["partition"], offset=said["offset"],
        value=said["value"], key=said.get("key"),
    )  # fmt: skip


def _committed(said: dict[str, Any], write: Write, op: int, owned: set[int]) -> None:
    ending = "ok" if said.get("success") else "info"
    for place in said["offsets"]:
        write(
            "commit", ending, op=op * 100 + place["partition"], partition=place["partition"],
            offset=place["offset"], error=said.get("error"),
        )  # fmt: skip


_TRANSLATIONS: dict[str, Callable[[dict[str, Any], Write, int, set[int]], None]] = {
    "partitions_assigned": _assigned,
    "partitions_revoked": _revoked,
    "record_data": _record,
    "offsets_committed": _committed,
}
