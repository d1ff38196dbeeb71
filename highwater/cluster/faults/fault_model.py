"""Faults, and the form of a schedule.

A schedule is a list, in JSON or YAML:

    [{"at": 3, "name": "kill", "target": "leader of safe-0", "for": 4, "as": "L"},
     {"after": 1, "name": "wait", "until": "healthy", "within": 20},
     {"name": "hold", "api": "setData", "path": "/partitions/0/state", "from": "$L", "to":
     "zookeeper", "for": 5}]

`at` is seconds since the workload began, `after` seconds since the previous entry was done (0 where
neither is given).  `for` ends the fault after that time (start, resume, heal, release), while the
schedule goes on.  Targets are roles, resolved when the fault fires; `as` names the resolved target
for later entries.

The verbs are in `verbs`, targets in `targets`; a harness may have verbs of its own beside them.
Fault specs of Kafka's own Trogdor with an equivalent here (NetworkPartitionFaultSpec,
ProcessStopFaultSpec) are accepted with their names and fields.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from highwater.verdict.documents import DocumentError, decode

VERBS = (
    "kill", "stop", "start", "restart", "pause", "resume", "cut", "heal", "isolate", "hold", "drop",
    "release", "swap_leader", "move_controller", "preferred_election", "kill_all", "start_all",
    "wait", "expire_session", "bind", "stand_still", "latency", "bandwidth", "reset_peer",
    "disk_full", "slow_disk", "clock_jump",
)  # fmt: skip
FIELDS = {
    "at", "after", "name", "target", "for", "as", "from", "to", "one_way", "api", "side", "path",
    "count", "leader", "not", "rate", "until", "within", "how", "seconds", "rule", "arrive",
    "latency", "jitter", "by", "when",
}  # fmt: skip


class ScheduleError(Exception):
    """A fault file that cannot be understood; one clear line."""


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    target: str = ""
    at: float | None = None
    after: float = 0.0
    lasts: float | None = None
    """`for` in a file: seconds after which the fault ends."""
    label: str = ""
    """`as` in a file."""
    params: dict[str, Any] = field(default_factory=dict)
    optional: bool = False
    """Whether it is left out where the run's time is over."""
    place: str = field(default="", compare=False)
    """Its place: the file and the entry."""


def load(path: Path, names: Collection[str] = VERBS) -> list[Fault]:
    """The schedule in a file, of these verbs; ScheduleError with the place of a mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScheduleError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScheduleError(f"{path} is not JSON or YAML in UTF-8: {error}") from error
    try:
        return parse(decode(text, str(path)), str(path), names)
    except DocumentError as error:
        raise ScheduleError(str(error)) from error


def parse(raw: Any, where: str = "schedule", names: Collection[str] = VERBS) -> list[Fault]:
    if isinstance(raw, dict) and "class" in raw:
        raw = [raw]
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        raise ScheduleError(f"{where}: a schedule is a list of faults, each with a name")
    faults: list[Fault] = []
    for number, entry in enumerate(raw, 1):
        place = f"{where}, fault {number}"
        if "class" in entry:
            faults += [replace(fault, place=place) for fault in _trogdor(entry, place)]
        else:
            faults.append(parse_one(entry, place, names))
    return faults


def parse_one(entry: dict[str, Any], place: str, names: Collection[str] = VERBS) -> Fault:
    name = entry.get("name")
    if not isinstance(name, str) or name not in names:
        raise ScheduleError(f"{place}: no verb {name!r}; there are {', '.join(names)}")
    if unknown := sorted(set(entry) - FIELDS):
        raise ScheduleError(
            f"{place} ({name}): unknown field {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}"
        )
    for key in ("at", "after", "for", "within", "rate", "seconds"):
        if not isinstance(entry.get(key, 0), int | float) or entry.get(key, 0) < 0:
            raise ScheduleError(f"{place} ({name}): {key} must be a number of seconds, 0 or more")
    known = {"at", "after", "name", "target", "for", "as"}
    return Fault(
        name=name,
        target=str(entry.get("target", "")),
        at=entry.get("at"),
        after=entry.get("after", 0.0),
        lasts=entry.get("for"),
        label=entry.get("as", ""),
        params={k: v for k, v in entry.items() if k not in known},
        place=place,
    )


def _trogdor(entry: dict[str, Any], place: str) -> list[Fault]:
    """Kafka's Trogdor fault specs, where there is an equivalent verb."""
    kind = str(entry["class"]).rsplit(".", 1)[-1].removesuffix("Spec").removesuffix("Fault")
    at = float(entry.get("startMs", 0)) / 1000
    lasts = float(entry.get("durationMs", 0)) / 1000
    if kind == "NetworkPartition":
        groups = [[_node(n) for n in group] for group in entry.get("partitions", [])]
        return [
            Fault("cut", at=at, lasts=lasts, params={"from": a, "to": b})
            for i, group in enumerate(groups)
            for others in groups[i + 1 :]
            for a in group
            for b in others
        ]
    if kind == "ProcessStop":
        return [Fault("pause", _node(n), at=at, lasts=lasts) for n in entry.get("nodeNames", [])]
    raise ScheduleError(f"{place}: Trogdor's {entry['class']} has no equal here")


def _node(name: str) -> str:
    """Trogdor's node names end with the broker's number."""
    number = re.search(r"(\d+)$", name)
    return f"broker-{number.group(1)}" if number else name
