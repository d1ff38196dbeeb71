"""The form of a schedule, and its checks before anything starts.

A schedule is a list, in JSON or YAML:

    [{"at": 3, "name": "kill", "target": "leader of safe-0", "for": 4, "as": "L"},
     {"after": 1, "name": "wait", "until": "healthy", "within": 20},
     {"name": "hold", "api": "setData", "path": "/partitions/0/state", "from": "$L", "to":
     "zookeeper", "for": 5}]

`at` is seconds since the workload began, `after` seconds since the previous entry was done (0 where
neither is given).  `for` ends the fault after that time (start, resume, heal, release), while the
schedule goes on.  Targets are roles, resolved when the fault fires; `as` names the resolved target
for later entries.

The verbs are in `verb_table`, targets in `targets`.
Fault specs of Kafka's own Trogdor with an equivalent here (NetworkPartitionFaultSpec,
ProcessStopFaultSpec) are accepted with their names and fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene, Wrong
from highwater.cluster.faults.verb_row import Field, Verb
from highwater.cluster.faults.verb_table import SCHEDULED, VERBS, fields_of
from highwater.verdict.documents import DocumentError, decode

ENTRY = ("at", "after", "name", "target", "for", "as")
"""The fields of an entry, whatever its verb."""


def load(path: Path, verbs: Mapping[str, Verb] = SCHEDULED) -> list[Fault]:
    """Reads a schedule that may use these verbs; ScheduleError has the place of a mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScheduleError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScheduleError(f"{path} is not JSON or YAML in UTF-8: {error}") from error
    try:
        return parse(decode(text, str(path)), str(path), verbs)
    except DocumentError as error:
        raise ScheduleError(str(error)) from error


def parse(raw: Any, where: str = "schedule", verbs: Mapping[str, Verb] = SCHEDULED) -> list[Fault]:
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
            faults.append(parse_one(entry, place, verbs))
    return faults


def parse_one(entry: dict[str, Any], place: str, verbs: Mapping[str, Verb] = SCHEDULED) -> Fault:
    name = entry.get("name")
    if not isinstance(name, str) or name not in verbs:
        raise ScheduleError(f"{place}: no verb {name!r}; there are {', '.join(verbs)}")
    fields = {*ENTRY, *fields_of({**VERBS, **verbs})}
    if unknown := sorted(set(entry) - fields):
        raise ScheduleError(
            f"{place} ({name}): unknown field {unknown[0]!r}; there are {', '.join(sorted(fields))}"
        )
    for key in ("at", "after", "for", "within", "rate", "seconds"):
        if not isinstance(entry.get(key, 0), int | float) or entry.get(key, 0) < 0:
            raise ScheduleError(f"{place} ({name}): {key} must be a number of seconds, 0 or more")
    return Fault(
        name=name,
        target=str(entry.get("target", "")),
        at=entry.get("at"),
        after=entry.get("after", 0.0),
        lasts=entry.get("for"),
        label=entry.get("as", ""),
        params={k: v for k, v in entry.items() if k not in ENTRY},
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


def check(schedule: Sequence[Fault], scene: Scene, verbs: Mapping[str, Verb] = VERBS) -> None:
    """Raises ScheduleError at the first entry that makes no sense in this scene."""
    for number, fault in enumerate(schedule, 1):
        place = fault.place or f"fault {number}"
        try:
            check_one(fault, scene, verbs)
        except Wrong as wrong:
            raise ScheduleError(f"{place} ({fault.name}): {wrong}") from None
        if fault.label:
            scene.labels.append(fault.label)
            if verbs[fault.name].makes_rule:
                scene.rules.append(fault.label)


def check_one(fault: Fault, scene: Scene, verbs: Mapping[str, Verb] = VERBS) -> None:
    """Raises ScheduleError, without a place, where this entry makes no sense in this scene."""
    verb = verbs[fault.name]
    if fault.name in scene.lacks:
        raise Wrong(f"it cannot be done here: {scene.lacks[fault.name]}")
    given = {**fault.params, **({"target": fault.target} if fault.target else {})}
    for name in verb.required:
        if name not in given:
            raise Wrong(f"it needs {name!r}")
    if fault.lasts is not None and not verb.lasts:
        raise Wrong("it does not last: leave out 'for'")
    if fault.target:
        if verb.target is None:
            raise Wrong(f"it takes no target: leave out {fault.target!r}")
        verb.target.check(scene, fault.target)
    fields = {field.name: field for field in verb.fields}
    for name, value in fault.params.items():
        if name not in fields:
            known = ", ".join(fields) or "no fields of its own"
            raise Wrong(f"it has no field {name!r}; it takes {known}")
        try:
            _check_value(scene, fields[name], value)
        except Wrong as wrong:
            raise Wrong(f"{name}: {wrong}") from None
    if verb.check is not None:
        verb.check(scene, verb.whole(fault))


def _check_value(scene: Scene, field: Field, value: Any) -> None:
    if field.choices and value not in field.choices:
        raise Wrong(f"{value!r} is none of {', '.join(field.choices)}")
    if field.check is not None:
        field.check(scene, value)
