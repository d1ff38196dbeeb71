"""spark/watch.py without its first lines: arguments, the streams, alarms, exit code.

    history.jsonl --pieces--> Spark's file source  --foreachBatch--> machines --> alarms.jsonl,
    topics        ----------> Spark's Kafka source --foreachBatch--> machines     terminal

Theory of operation.  Spark's checkpoint defines the content of each batch, so a batch that comes
again after a restart is the same one; `machines` keep in one file their state and which batches are
in it.  The machines are in the driver: a rule needs a topic's lines in order, and one process can
judge far more than one cluster's clients on this machine write.  There are two streams, so that
brokers that are away delay no line of the history; a stream that ended because of them is started
again.

"Unseen for N seconds" is judged by the wall clock only while the history's stream keeps up: after a
restart, and behind a backlog, a record that has not been read yet is not unseen.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from highwater.base.wall_clock import wall_ms
from highwater.verdict.by_spark import spark_session
from highwater.verdict.by_spark.spark_job import CANNOT_BE_CHECKED, first_cause, in_session
from highwater.verdict.watching.alarms_file import AlarmsFile, told
from highwater.verdict.watching.machines import Machines, Promises, Record, StateDamaged
from highwater.verdict.watching.pieces import AT_ONCE, Pieces, end_of, end_of_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK: Final = "watch: "
HISTORY, TOPICS = "history", "topics"
"""The names of the streams."""
TELL_EVERY_S: Final = 10.0
RESTART_S: Final = 120.0
"""How long a stream of topics may fail and is started again."""
LOOK_EVERY_S: Final = 1.0
LATE_S: Final = 10
DRAIN_S: Final = 60.0
INTERRUPTED: Final = (
    "org.apache.spark.scheduler.DAGScheduler",
    "org.apache.spark.broadcast.TorrentBroadcast",
    "org.apache.hadoop.util.Shell",
    "org.apache.spark.sql.execution.streaming.ProcessingTimeExecutor",
    "org.apache.spark.sql.kafka010",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
)
"""Loggers that write at length about streams that are stopped, late, or without their brokers."""
PLAIN_FILES: Final = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
"""Avoids a checksum file beside each small file, for each of which Hadoop would start a chmod."""
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}
"""Settings that the user has not set, for many small batches."""


class CannotWatch(Exception):
    """RUN is not as it must be, or a stream cannot go on; the message is one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        info = _run_info(Path(args.run))
    except CannotWatch as error:
        print(f"{MARK}{error}", file=sys.stderr, flush=True)
        return CANNOT_BE_CHECKED
    refusals = (CannotWatch, StateDamaged)
    return in_session("watch", lambda spark: Watch(spark, args, info).run(), *refusals)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-submit spark/watch.py",
        description="Looks on while a run goes on: exit code 1 when a promise is broken, 0 at an "
        "orderly end, 3 where RUN cannot be watched.",
        epilog="example: spark-submit spark/watch.py runs/7 --seconds 60",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="the run's folder, on this machine")
    add("--bootstrap", help="read the topics of this cluster beside the history")
    add("--topics", help="which, separated by commas (default: those in RUN/run.json)")
    add("--compacted", default="", help="topics whose offsets may be gone by right")
    for name, seconds, what in (
        ("--unseen", 60.0, "until an acknowledged record must have been read; longer than outages"),
        ("--horizon", 60.0, "that are remembered"),
        ("--every", 0.5, "between batches"),
    ):
        help_ = f"seconds {what} (default %(default)s)"
        add(name, type=float, default=seconds, metavar="S", help=help_)
    add("--seconds", type=float, metavar="S", help="end after so many seconds of watching")
    add("--go-on", action="store_true", help="do not end at the first alarm")
    return parser


def _run_info(folder: Path) -> dict[str, Any]:
    """run.json; empty for a user's own history."""
    if not folder.is_dir():
        raise CannotWatch(f"{folder} is no folder on this machine")
    path = folder / "run.json"
    if path.is_file():
        try:
            info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CannotWatch(f"{path} is not JSON: {error}") from error
        return info
    if not (folder / "history.jsonl").is_file():
        raise CannotWatch(f"{folder} holds no history.jsonl and no run.json: name a run's folder")
    return {}


class Watch:
    """One call of the job."""

    def __init__(self, spark: SparkSession, args: argparse.Namespace, info: dict[str, Any]) -> None:
        self.spark, self.args, self.info = spark, args, info
        self.folder = Path(args.run).absolute()
        self.state = self.folder / "watch"
        self.state.mkdir(exist_ok=True)
        topics = info.get("topics", [])
        promises = Promises(
            unseen_s=args.unseen,
            horizon_s=args.horizon,
            unclean=tuple(str(t["name"]) for t in topics if t.get("unclean")),
            compacted=tuple(topic for topic in args.compacted.split(",") if topic),
        )
        self.machines = Machines(promises)
        self.machines.load(self.state / "machines")
        self.alarms = AlarmsFile(self.state / "alarms.jsonl")
        self.pieces = Pieces(self.folder / "history.jsonl", self.state)
        self.lock = threading.Lock()
        """Held by whatever uses the machines: a batch of either stream, or the wall clock."""
        self.broken = 0
        self.warm = False
        """Whether the history's stream has had a batch since the start."""
        self.history: Any = None
        self.lengths: deque[int] = deque(maxlen=LATE_S)
        """The length of the history at each of the last looks."""
        self.looked_at = 0.0
        self.bytes = 0
        self.took: dict[str, float] = {}
        """The history's last batch: what it did -> the seconds that this took."""
        self.failing_since: float | None = None
        self.began = self.told_at = time.monotonic()

    def run(self) -> int:
        spark_session.quiet(INTERRUPTED)
        asked = self.spark.sparkContext.getConf()
        for name, value in SETTINGS.items():
            if not asked.contains(name):
                self.spark.conf.set(name, value)
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in PLAIN_FILES.items():
            hadoop.set(name, value)
        topics = self._topic_names() if self.args.bootstrap else []
        (self.state / "stop").unlink(missing_ok=True)
        self.pieces.start()
        try:
            history = self._start(HISTORY, self._history(), self._take_history)
            others = []
            if topics:
                others.append(self._start(TOPICS, self._topics(topics), self._take_topics))
            self.history = history
            self._wait_for_a_batch(history)
            self._say(f"watches {self.folder} after {time.monotonic() - self.began:.1f} s")
            self.began = time.monotonic()
            while not self._is_over(history):
                if not history.isActive:
                    raise CannotWatch(f"the history's stream: {first_cause(history.exception())}")
                if others and not others[0].isActive:
                    others = [self._again(others[0], topics)]
                self._look()
                time.sleep(0.1)
            for stream in (history, *others):
                stream.stop()
        finally:
            self.pieces.close()
        self._tell()
        return 1 if self.alarms.ids else 0  # alarms of an earlier start count, too

    # --- the streams

    def _start(self, name: str, rows: DataFrame, take: Callable[[DataFrame, int], None]) -> Any:
        return (
            rows.writeStream.queryName(name)
            .option("checkpointLocation", str(self.state / f"checkpoint-{name}"))
            .trigger(processingTime=f"{int(self.args.every * 1000)} milliseconds")
            .foreachBatch(take)
            .start()
        )

    def _history(self) -> DataFrame:
        return (
            self.spark.readStream.format("binaryFile")
            .schema("path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY")
            .option("maxFilesPerTrigger", str(AT_ONCE))  # all waiting pieces, so as to keep up
            .option("cleanSource", "delete")
            .load(str(self.pieces.folder))
            .select("path", "content")
        )

    def _topics(self, topics: list[str]) -> DataFrame:
        from pyspark.sql import functions as F

        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.args.bootstrap)
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "100000")
            .option("failOnDataLoss", "false")  # the rules find what is lost
            .option("kafka.isolation.level", "read_uncommitted")
            .option("kafka.request.timeout.ms", "5000")
            .option("kafka.default.api.timeout.ms", "10000")
            .load()
            .select("topic", "partition", "offset", "key", "value", F.unix_millis("timestamp"))
        )

    def _topic_names(self) -> list[str]:
        if self.args.topics:
            return [topic for topic in self.args.topics.split(",") if topic]
        topics = [str(topic["name"]) for topic in self.info.get("topics", [])]
        if not topics:
            raise CannotWatch(f"{self.folder}/run.json names no topics: name them with --topics")
        return topics

    def _take_history(self, batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        pieces = sorted((row.path, bytes(row.content)) for row in batch.collect())
        end = max((end_of(path) for path, _ in pieces), default=0)

        def take(now_ms: int) -> None:
            self.machines.take_lines([content for _, content in pieces], now_ms)
            self.machines.position = max(self.machines.position, end)

        self.took = {"read": time.monotonic() - began}
        self._take(HISTORY, number, take)

    def _take_topics(self, batch: DataFrame, number: int) -> None:
        records = [Record(*row) for row in batch.collect()]
        self._take(TOPICS, number, lambda now_ms: self.machines.take_records(records, now_ms))

    def _wait_for_a_batch(self, history: Any) -> None:
        while not self.warm and history.isActive:
            time.sleep(0.05)

    def _take(self, stream: str, number: int, take: Callable[[int], None]) -> None:
        with self.lock:
            self.warm = self.warm or stream == HISTORY
            if stream == TOPICS:
                self.failing_since = None
            if number <= self.machines.batches.get(stream, -1):
                return  # the batch came before the restart, and is in the state
            bad, began = self.machines.bad_lines, time.monotonic()
            take(wall_ms())
            if self.machines.bad_lines > bad:
                more = self.machines.bad_lines - bad
                self._say(f"{more} lines of the history are no JSON objects: they are left out")
            self.machines.forget()
            self._report()
            self.machines.batches[stream] = number
            judged = time.monotonic()
            self.bytes = self.machines.save(self.state / "machines")
            if stream == HISTORY:
                self.took |= {"rules": judged - began, "state": time.monotonic() - judged}

    def _report(self) -> None:
        for alarm in self.machines.alarms():
            if (new := self.alarms.add(alarm.as_json())) is not None:
                self.broken += 1
                print(told(new), flush=True)

    def _again(self, failed: Any, topics: list[str]) -> Any:
        """Starts the topics' stream again, from its checkpoint."""
        cause = first_cause(failed.exception())
        now = time.monotonic()
        self.failing_since = self.failing_since or now
        if now - self.failing_since > RESTART_S:
            raise CannotWatch(f"the topics could not be read for {RESTART_S:g} s: {cause}")
        self._say(f"the topics cannot be read now, and are tried again: {cause}")
        time.sleep(1)
        return self._start(TOPICS, self._topics(topics), self._take_topics)

    # --- the clock

    def _look(self) -> None:
        """Raises alarms for what is unseen for too long, unless lines older than LATE_S are still
        to be read."""
        now = time.monotonic()
        if now - self.looked_at >= LOOK_EVERY_S:
            self.looked_at = now
            self.lengths.append(end_of_lines(self.pieces.history))
            full = len(self.lengths) == self.lengths.maxlen
            if full and self.machines.position >= self.lengths[0]:
                with self.lock:
                    self.machines.due(wall_ms())
                    self._report()
        if self.pieces.error is not None:
            raise CannotWatch(f"the history cannot be read: {self.pieces.error}")
        if time.monotonic() - self.told_at >= TELL_EVERY_S:
            self._tell()

    def _is_over(self, history: Any) -> bool:
        if self.broken and not self.args.go_on:
            return True
        seconds = self.args.seconds
        late = seconds is not None and time.monotonic() - self.began >= seconds
        if not late and not (self.state / "stop").exists():
            return False
        end = end_of_lines(self.pieces.history)
        deadline = time.monotonic() + DRAIN_S
        while self.machines.position < end and history.isActive:
            if time.monotonic() > deadline:
                behind = end - self.machines.position
                raise CannotWatch(f"{behind:,} bytes of the history were not read in {DRAIN_S:g} s")
            time.sleep(0.05)
        return True

    # --- what it says

    def _tell(self) -> None:
        self.told_at = time.monotonic()
        of = self.machines
        self._say(
            f"{of.lines:,} lines, {of.records:,} records of topics, {self.broken} alarms,"
            f" {self.bytes / (1 << 20):.1f} MiB of state after {self.told_at - self.began:.0f} s"
            f"{_of_batch(self.history, self.took)}"
        )

    def _say(self, line: str) -> None:
        print(MARK + line, flush=True)


def _of_batch(stream: Any, took: dict[str, float]) -> str:
    """A text on where the seconds of the history's last batch went; the rest is Spark's own."""
    progress = stream.lastProgress if stream is not None else None
    whole = progress["durationMs"].get("triggerExecution") if progress is not None else None
    if whole is None:
        return ""
    parts = [f"{name} {seconds:.1f}" for name, seconds in took.items()]
    spark = max(0.0, whole / 1000 - sum(took.values()))
    return f"; a batch takes {whole / 1000:.1f} s: Spark {spark:.1f}, {', '.join(parts)}"
