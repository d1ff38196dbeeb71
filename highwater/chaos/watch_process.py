"""Runs spark/watch.py during a chaos run: starts it before the workload, waits for its alarms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import trio

from highwater.chaos.witnesses.state_rules import Found
from highwater.child_processes import Child, StartError
from highwater.verdict.by_spark import spark_submit
from highwater.verdict.location import spark_folder
from highwater.verdict.watching.alarms_file import read_alarms, told

RULE: Final = "W1"
START_S: Final = 180.0
END_S: Final = 90.0


class WatchProcess:
    """`start`, then `first_alarm` beside the workload, then `stop`."""

    def __init__(self, run: Path, progress: Any) -> None:
        """Raises StartError where Spark or its connector is missing and cannot be fetched."""
        self.run = run
        self.progress = progress
        try:
            self.spark = spark_submit.find()
            self.connector = spark_submit.connector_arguments(progress.say)
        except spark_submit.SparkMissing as error:
            raise StartError(f"--watch: {error}") from error
        self.child: Child | None = None

    async def start(self, bootstrap: str, topics: Sequence[str]) -> None:
        """Starts it, and waits until it watches."""
        options = ["--master", "local[2]", "--driver-memory", "512m", *self.connector]
        options += ["--conf", "spark.ui.enabled=false"]
        options += ["--driver-java-options", "-XX:TieredStopAtLevel=1"]
        job = [str(spark_folder() / "watch.py"), str(self.run), "--bootstrap", bootstrap]
        command = [str(self.spark.home / "bin" / "spark-submit"), *options, *job]
        command += ["--topics", ",".join(topics)]
        began = time.monotonic()
        self.child = Child(
            "watch",
            command,
            output=self.run / "watch.log",
            cwd=Path.cwd(),
            env=self.spark.environment(),
        )
        while "watch: watches" not in self.child.new_output():
            if not self.child.running or time.monotonic() - began > START_S:
                self.kill()
                raise StartError(
                    f"spark/watch.py did not begin: {self.child.last_words()}"
                    f" (see {self.run / 'watch.log'})"
                )
            await trio.sleep(0.1)
        self.progress.say(f"the watch looks on after {time.monotonic() - began:.1f} s")

    async def first_alarm(self) -> None:
        """Returns when there is an alarm."""
        while not self._alarms():
            await trio.sleep(0.05)
        self.progress.say(f"watch: {told(self._alarms()[0])}")

    async def stop(self) -> Found:
        """Lets it read the rest of the history, and gives its output."""
        found = Found("watched while it ran")
        if self.child is None:
            return found
        if self.child.running:
            (self.run / "watch" / "stop").touch()
        with trio.move_on_after(END_S):
            while self.child.running:
                await trio.sleep(0.05)
        code = self.child.wait(0)
        self.kill()
        if code not in (0, 1):
            self.progress.say(f"the watch did not come to its end: {self.child.last_words()}")
        else:
            with self.run.joinpath("history.jsonl").open("rb") as lines:
                found.examined = sum(1 for _ in lines)
        for alarm in self._alarms():
            found.broken(told(alarm))
        return found

    def kill(self) -> None:
        if self.child is not None:
            spark_submit.end(self.child)

    def _alarms(self) -> list[dict[str, Any]]:
        return read_alarms(self.run / "watch" / "alarms.jsonl")
