"""Writes alarms.jsonl: each alarm once, even if it is computed again after a restart.  Pure but for
the file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class AlarmsFile:
    """Spark delivers a batch's rows at least once; by its id, an alarm is written only once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids = {alarm["id"] for alarm in read_alarms(path)}
        _cut_torn_line(path)

    def add(self, alarm: dict[str, Any]) -> dict[str, Any] | None:
        """Writes an alarm with the seconds since its record, and returns it; None if the file has
        it already."""
        if alarm["id"] in self.ids:
            return None
        self.ids.add(alarm["id"])
        if "t_ns" in alarm:
            alarm["seconds"] = round((time.monotonic_ns() - alarm["t_ns"]) / 1e9, 3)
        elif "t_ms" in alarm:
            alarm["seconds"] = round(time.time() - alarm["t_ms"] / 1e3, 3)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(alarm) + "\n")
        return alarm


def read_alarms(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file; none if there is no file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def told(alarm: dict[str, Any]) -> str:
    """`C2 orders-0 offset 17: stands at offsets 12 and 17 (3.1 s after its record)`"""
    place = alarm.get("topic", "")
    if "partition" in alarm:
        place += f"-{alarm['partition']}"
    if "offset" in alarm:
        place += f" offset {alarm['offset']}"
    after = f" ({alarm['seconds']:.1f} s after its record)" if "seconds" in alarm else ""
    head = f"{alarm['rule']} {place}".rstrip()
    return f"{head}: {alarm['detail']}{after}"


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if (whole := data.rfind(b"\n") + 1) < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
