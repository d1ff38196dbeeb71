"""spark/watch.py over a history that grows by 5,000 records a second: alarms within seconds, and
memory that stays as it is.

usage: python -m tests.long.watch [SECONDS [RATE [PLANT_EVERY_S]]]

Each record has three lines: its send, its acknowledgement, and the poll that read it.  Every
PLANT_EVERY_S one line breaks a promise, each of four in turn.  Each of them must be named, within
ALARM_S of its line; after the first fifth, the memory of the watch's processes may
grow by a fifth at most.  Each plant, each measurement of memory, and where the seconds of a batch
went is a line of output.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from highwater.verdict.by_spark import spark_submit
from highwater.verdict.location import spark_folder
from highwater.verdict.watching.alarms_file import read_alarms, told

PARTITIONS = 3
PLANT_EVERY_S = 30.0
TICK_S = 0.1
ALARM_S = 5.0
START_S = 300.0
GROWTH = 1.2
UNKNOWN = 1_000_000_000
"""From here on are the numbers of sends without an answer."""
PADDING = "." * 60
Lines = list[dict[str, Any]]


class Generator:
    """A sound run of one producer and one consumer, line by line."""

    def __init__(self) -> None:
        self.number = 0
        self.index = 0
        self.ends = [0] * PARTITIONS

    def _line(self, process: str, f: str, type_: str, **fields: Any) -> dict[str, Any]:
        self.index += 1
        common = {"run": "long", "index": self.index, "process": process, "client": "generator"}
        when = {"t_ns": time.monotonic_ns(), "topic": "orders", "phase": "run"}
        return {**common, "f": f, "type": type_, **when, **fields}

    def record(self) -> Lines:
        partition = self.number % PARTITIONS
        offset = self.ends[partition]
        self.ends[partition] += 1
        self.number += 1
        what = {"partition": partition, "key": f"k{self.number % 16}"}
        what["value"] = f"long|{self.number}|{PADDING}"
        send = {"op": self.number, "acks": -1, "idempotent": True, **what}
        return [
            self._line("producer", "send", "invoke", **send),
            self._line("producer", "send", "ok", offset=offset, **send),
            self._line("consumer", "poll", "ok", offset=offset, op=-self.number, **what),
        ]

    # --- what breaks a promise

    def duplicate(self) -> Lines:
        """C2: the last value stands at the next offset, too."""
        *lines, read = self.record()
        offset = self.ends[read["partition"]]
        self.ends[read["partition"]] += 1
        fields = {name: read[name] for name in ("partition", "key", "value")}
        return [*lines, read, self._line("consumer", "poll", "ok", offset=offset, **fields)]

    def went_back(self) -> Lines:
        """C9"""
        *lines, read = self.record()
        again = {name: read[name] for name in ("partition", "key", "value", "offset")}
        return [*lines, read, self._line("consumer", "poll", "ok", **again)]

    def another_value(self) -> Lines:
        """C1: a consumer that has read nothing before reads another value.  It was sent at the same
        time, without an answer: so neither C7 (nobody sent it), C8 (the reader left out what lies
        before) nor C11 (it was sent too late for that offset)."""
        value, partition = f"another {self.number}", self.number % PARTITIONS
        sent = {"op": UNKNOWN + self.number, "acks": -1, "idempotent": False, "key": "k"}
        sent |= {"partition": partition, "value": value}
        unknown = [self._line("second", "send", type_, **sent) for type_ in ("invoke", "info")]
        *lines, read = self.record()
        assert read["partition"] == partition
        reader, other = f"reader-{self.number}", {"partition": partition, "offset": read["offset"]}
        return [
            *unknown,
            *lines,
            read,
            self._line(reader, "poll", "ok", key="k", value=value, **other),
        ]

    def acknowledged_twice(self) -> Lines:
        """C12: two sends, which overlap, are given one offset."""
        invoke, acked, read = self.record()
        self.number += 1
        other = {"op": self.number, "acks": -1, "idempotent": False, "key": "k"}
        other |= {"partition": acked["partition"], "value": f"second {self.number}"}
        second = self._line("second", "send", "invoke", **other)
        again = self._line("second", "send", "ok", offset=acked["offset"], **other)
        begun, later = {"t_ns": invoke["t_ns"]}, {"t_ns": time.monotonic_ns()}
        return [invoke, second | begun, acked, again, read | later]

    def plants(self) -> list[tuple[str, Callable[[], Lines]]]:
        return [
            ("C2", self.duplicate),
            ("C9", self.went_back),
            ("C1", self.another_value),
            ("C12", self.acknowledged_twice),
        ]


def memory_mib(process: psutil.Process) -> float:
    """Of the process and all below it."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.Error:
            continue
    return total / (1 << 20)


def cpu_s(process: psutil.Process) -> tuple[float, float]:
    """CPU seconds of Java, and of the Python beside it."""
    java = sum(process.cpu_times()[:2])
    return java, sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))


def start(folder: Path) -> subprocess.Popen[bytes]:
    spark = spark_submit.find()
    command = [str(spark.home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-memory", "512m", "--conf", "spark.ui.enabled=false"]
    command += ["--driver-java-options", "-XX:TieredStopAtLevel=1"]  # as highwater chaos --watch
    command += [str(spark_folder() / "watch.py"), str(folder), "--go-on"]
    log = folder / "watch.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=spark.environment()
        )
    deadline = time.monotonic() + START_S
    while "watch: watches" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the watch did not begin: {log.read_text()[-1000:]}")
        time.sleep(0.1)
    return process


@dataclass(slots=True)
class Measured:
    """The result: the rules that were broken and the alarms, each in their order."""

    planted: list[str] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """(Seconds, MiB)."""
    rate: float = 0.0
    """Records a second that were reached."""
    java_s: float = 0.0
    python_s: float = 0.0
    """CPU seconds of the watch, while lines came."""
    share: float = 1.0
    """Of a core, what this machine gave to the generator while it had work: below 1 on a busy one.
    """
    code: int = 0

    @property
    def all_named(self) -> bool:
        named = sorted(alarm["rule"] for alarm in self.alarms)
        return self.code == 1 and named == sorted(self.planted)

    @property
    def delays(self) -> list[float]:
        """Seconds from a line to its alarm."""
        return [alarm["seconds"] for alarm in self.alarms] or [float("inf")]


def generate(
    folder: Path, process: subprocess.Popen[bytes], seconds: float, rate: float, every: float
) -> Measured:
    generator, found = Generator(), Measured()
    watched = psutil.Process(process.pid)
    before = cpu_s(watched)
    began, busy, worked = time.monotonic(), 0.0, time.process_time()
    next_plant, next_look = every / 3, 0.0
    with (folder / "history.jsonl").open("ab", buffering=0) as history:
        while (now := time.monotonic() - began) < seconds:
            if process.poll() is not None:
                raise AssertionError(f"the watch ended with {process.returncode}")
            lines: Lines = []
            for _ in range(min(int(rate * now) - generator.number, int(rate))):
                lines += generator.record()
            if now >= next_plant:
                plants = generator.plants()
                rule, plant = plants[len(found.planted) % len(plants)]
                lines += plant()
                found.planted.append(rule)
                next_plant += every
            history.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            if now >= next_look:
                found.memory.append((now, memory_mib(watched)))
                next_look += 5
            busy += time.monotonic() - began - now
            time.sleep(max(0.0, TICK_S - (time.monotonic() - began - now)))
    found.share = min(1.0, (time.process_time() - worked) / busy)
    found.rate = generator.number / (time.monotonic() - began)
    found.java_s, found.python_s = (
        after - b for after, b in zip(cpu_s(watched), before, strict=True)
    )
    return found


def measure(folder: Path, seconds: float, rate: float, every: float) -> Measured:
    (folder / "history.jsonl").touch()
    process = start(folder)
    try:
        found = generate(folder, process, seconds, rate, every)
        (folder / "watch" / "stop").touch()
        found.code = process.wait(START_S)
    finally:
        if process.poll() is None:
            process.kill()
    found.alarms = read_alarms(folder / "watch" / "alarms.jsonl")
    return found


def main(folder: Path, seconds: float, rate: float, every: float = PLANT_EVERY_S) -> int:
    found = measure(folder, seconds, rate, every)
    steady = [mib for at, mib in found.memory if at > seconds / 5]
    growth = statistics.mean(steady[-5:]) / statistics.mean(steady[:5])
    for alarm in found.alarms:
        print(told(alarm))
    for at, mib in found.memory:
        print(f"after {at:.0f} s {mib:.0f} MiB")
    for line in (folder / "watch.log").read_text().splitlines():
        if "a batch takes" in line:
            print(line)
    print(
        f"CPU seconds in {seconds:.0f} s: Java {found.java_s:.1f}, Python {found.python_s:.1f};"
        f" the machine gave {found.share:.0%} of a core to what asked for one"
    )
    good = found.all_named and growth < GROWTH and max(found.delays) <= ALARM_S
    print(
        f"{seconds:.0f} s at {found.rate:,.0f} records a second: {len(found.alarms)} alarms for"
        f" {len(found.planted)} plants, median {statistics.median(found.delays):.1f} s and worst"
        f" {max(found.delays):.1f} s after their lines; memory {steady[0]:.0f} MiB after a fifth of"
        f" the time and {steady[-1]:.0f} MiB at the end"
    )
    return 0 if good else 1


if __name__ == "__main__":
    given = [float(number) for number in sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="highwater-watch-") as work:
        sys.exit(main(Path(work), *(given + [1800.0, 5000.0, PLANT_EVERY_S][len(given) :])))
