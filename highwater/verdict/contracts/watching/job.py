"""spark/contract.py --watch: the stream, the clock, offenders, exit code.

    topics --> Spark's Kafka source --> fields, by the executors --foreachBatch--> machine

Spark's checkpoint defines the content of each batch, so that a batch that comes again after a
restart is the same one; the machine keeps in one file its state and the last batch that is in it.
The rules are in the driver, because a count, an id or a sum spans partitions and topics.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from highwater.base.wall_clock import wall_ms
from highwater.verdict.by_spark import spark_session
from highwater.verdict.by_spark.spark_job import first_cause
from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.contracts.watching.machine import ContractMachine, Place, Waits
from highwater.verdict.contracts.watching.row import Row
from highwater.verdict.watching import job as watch
from highwater.verdict.watching.alarms_file import AlarmsFile, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK: Final = "contract: "
NAME: Final = "contract"
AT_ONCE: Final = 50_000
"""The most records of a batch, which bounds the driver's memory, whatever the topics' size."""
PROGRESS_EVERY_MS: Final = 500
SETTINGS: Final = {
    **watch.SETTINGS,
    "spark.sql.streaming.noDataProgressEventInterval": str(PROGRESS_EVERY_MS),
}
Rows = Callable[["DataFrame"], "DataFrame"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of --watch."""
    group = parser.add_argument_group("while the topics are written")
    add = group.add_argument
    add("--watch", action="store_true", help="go on reading, and name each offender as it comes")
    add("--state", metavar="FOLDER", help="of --watch, on this machine (default FILE.watch)")
    for name, seconds, what in (
        ("--unseen", 60.0, "until a missing number, or an output without within_s, is missed"),
        ("--horizon", 60.0, "that are remembered"),
        ("--every", 0.5, "between batches"),
    ):
        help_ = f"seconds {what} (default %(default)s)"
        add(name, type=float, default=seconds, metavar="S", help=help_)
    add("--seconds", type=float, metavar="S", help="end after so many seconds of watching")
    add("--go-on", action="store_true", help="do not end at the first offender")


class ContractWatch:
    """One call of the job."""

    def __init__(
        self,
        spark: SparkSession,
        args: argparse.Namespace,
        contract: Contract,
        options: Mapping[str, str],
        rows: Rows,
    ) -> None:
        """`options`: those of Spark's Kafka source; `rows`: gives the fields of its records.

        Raises CannotWatch, StateDamaged.
        """
        self.spark, self.args, self.options, self.rows = spark, args, options, rows
        self.state = Path(args.state or f"{args.contract}.watch").absolute()
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise watch.CannotWatch(
                f"{self.state} cannot be made: {error.strerror}: name a folder by --state"
            ) from error
        self.alone = take(self.state)
        self.machine = ContractMachine(contract, Waits(args.unseen, args.horizon))
        self.machine.load(self.state / "machine")
        self.alarms = AlarmsFile(self.state / "alarms.jsonl")
        self.lock = threading.Lock()
        """Held by whatever uses the machine: a batch of the stream, or the clock."""
        self.broken = self.bytes = 0
        self.failing_since: float | None = None
        self.read_up_to_ms = 0
        """The start of the newest batch after which nothing was left to read."""
        self.began = self.told_at = time.monotonic()

    def run(self) -> int:
        spark_session.quiet(watch.INTERRUPTED)
        asked = self.spark.sparkContext.getConf()
        for name, value in SETTINGS.items():
            if not asked.contains(name):
                self.spark.conf.set(name, value)
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in watch.PLAIN_FILES.items():
            hadoop.set(name, value)
        (self.state / "stop").unlink(missing_ok=True)
        stream = self._start()
        begun = False
        while not self._is_over():
            if not stream.isActive:
                stream = self._again(stream)
            self._look(stream)
            if not begun and self.read_up_to_ms:
                begun = True
                after = f"after {time.monotonic() - self.began:.1f} s"
                self._say(f"watches {', '.join(self.machine.topics)} {after}; state: {self.state}")
                self.began = time.monotonic()
            time.sleep(0.1)
        stream.stop()
        self._tell()
        return 1 if self.alarms.ids else 0  # alarms of an earlier start count, too

    # --- the stream

    def _start(self) -> Any:
        source = self.spark.readStream.format("kafka").options(**self.options)
        return (
            self.rows(source.option("maxOffsetsPerTrigger", str(AT_ONCE)).load())
            .writeStream.queryName(NAME)
            .option("checkpointLocation", str(self.state / "checkpoint"))
            .trigger(processingTime=f"{int(self.args.every * 1000)} milliseconds")
            .foreachBatch(self._take)
            .start()
        )

    def _take(self, batch: DataFrame, number: int) -> None:
        rows = [Row(*row) for row in batch.collect()]
        with self.lock:
            self.failing_since = None
            if number <= self.machine.batch:
                return  # the batch came before the restart, and is in the state
            self.machine.take(rows, wall_ms())
            self.machine.forget()
            self._report()
            self.machine.batch = number
            self.bytes = self.machine.save(self.state / "machine")

    def _report(self) -> None:
        for alarm in self.machine.alarms():
            if (new := self.alarms.add(alarm.as_json())) is not None:
                self.broken += 1
                print(told(new), flush=True)

    def _again(self, failed: Any) -> Any:
        """Starts the stream again, from its checkpoint."""
        cause = first_cause(failed.exception())
        now = time.monotonic()
        self.failing_since = self.failing_since or now
        if now - self.failing_since > watch.RESTART_S or self.machine.batch < 0:
            raise watch.CannotWatch(f"the topics cannot be read: {cause}")
        self._say(f"the topics cannot be read now, and are tried again: {cause}")
        time.sleep(1)
        return self._start()

    # --- the clock

    def _look(self, stream: Any) -> None:
        """Reports the alarms that waited for their time."""
        progress = stream.lastProgress
        if progress is not None and (seen := progress_of(progress.json)) is not None:
            began_ms, behind = seen
            with self.lock:
                self.machine.advance(began_ms, behind)
                self._report()
            if not behind:
                self.read_up_to_ms = began_ms
        if time.monotonic() - self.told_at >= watch.TELL_EVERY_S:
            self._tell()

    def _is_over(self) -> bool:
        if self.broken and not self.args.go_on:
            return True
        if not self.read_up_to_ms:
            return False
        if (self.state / "stop").exists():
            return True
        seconds = self.args.seconds
        return seconds is not None and time.monotonic() - self.began >= seconds

    # --- what it says

    def _tell(self) -> None:
        self.told_at = time.monotonic()
        behind_s = max(0.0, (wall_ms() - self.machine.clock_ms) / 1000)
        read = f"{behind_s:.1f} s behind" if self.machine.clock_ms else "reading"
        self._say(
            f"{self.machine.records:,} records, {read}, {self.broken} offenders,"
            f" {self.bytes / (1 << 20):.1f} MiB of state"
        )

    def _say(self, line: str) -> None:
        print(MARK + line, flush=True)


def take(state: Path) -> IO[str]:
    """Locks the folder until this process ends; CannotWatch if another process has the lock."""
    lock = (state / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise watch.CannotWatch(
            f"{state} belongs to a watch that still runs: end it, or name another --state"
        ) from None
    return lock


def progress_of(text: str) -> tuple[int, list[Place]] | None:
    """When a batch began (ms), and the partitions that it did not read to what were their ends.

    `text` is the JSON of a StreamingQueryProgress; None if its source reports no offsets.
    """
    progress = json.loads(text)
    source = progress["sources"][0] if progress["sources"] else {}
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    behind = [place for place, offset in latest.items() if end.get(place, 0) < offset]
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    return int(began.timestamp() * 1000), behind


def _offsets(given: Any) -> dict[Place, int] | None:
    found = json.loads(given) if isinstance(given, str) else given
    if not isinstance(found, dict):
        return None
    return {(topic, int(p)): n for topic, of in found.items() for p, n in of.items()}
