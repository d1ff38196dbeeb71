"""The application under test in a history: what it wrote, what it was told, what it processed.

The history's own clients record everything about themselves.  The application records nothing, so
these functions make lines for it: a record that was read and that no client of the history sent is
a send of unknown outcome; values that were acknowledged to the application are acknowledged sends;
values that it processed are its reads.  Then the checks judge it like any client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

APPLICATION: Final = "the application"
_OP: Final = 1 << 40
"""Above the operation numbers of the history's own clients."""
Line = dict[str, Any]


def with_application(
    lines: Iterable[Line], run: str, topic: str, acknowledged: Sequence[str] = ()
) -> list[Line]:
    """The lines on one topic, and the application's sends to it.

    A value of this run's own that no client sent is left as it is: it was damaged.
    """
    kept = [dict(line) for line in lines if line.get("topic", topic) == topic]
    own = {line["value"] for line in kept if line["f"] == "send"}
    places: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
    for line in kept:
        value = line.get("value")
        if line["f"] != "poll" or value is None or value in own or value.startswith(f"{run}|"):
            continue
        place = (line["partition"], line.get("key"))
        if place not in places[value]:
            places[value].append(place)
        line["value"] = _named(value, places[value].index(place))
    sends = []
    promised: dict[str, int] = defaultdict(int)
    for value in acknowledged:
        found = places.get(value, [])
        number = min(promised[value], max(len(found) - 1, 0))
        promised[value] += 1
        sends.append((_named(value, number), "ok", found[number] if found else None))
    for value, found in places.items():
        for number, place in enumerate(found[promised[value] :], promised[value]):
            sends.append((_named(value, number), "info", place))
    made = kept
    for number, (value, type_, where) in enumerate(sends):
        made += _send(_OP + number, topic, value, type_, where)
    return made


def _named(value: str, number: int) -> str:
    """Equal values in several places or under several keys are told apart by a number."""
    return f"{value} #{number + 1}" if number else value


def _send(
    op: int, topic: str, value: str, ending: str, place: tuple[int, str | None] | None
) -> list[Line]:
    partition, key = place or (None, None)
    common = {"process": APPLICATION, "client": APPLICATION, "f": "send", "op": op, "index": op}
    common |= {"topic": topic, "partition": partition, "key": key, "value": value, "acks": -1}
    # when it was sent is unknown: so long ago that no check of real time can hold it against it
    return [{**common, "type": "invoke", "t_ns": 0}, {**common, "type": ending}]


def as_processed(lines: Iterable[Line], topic: str, processed: Iterable[str]) -> list[Line]:
    """The sends to the topic, read by the application alone, in the order of `processed`."""
    sends: list[Line] = []
    at: dict[str, tuple[int, int]] = {}
    for line in lines:
        if line["f"] == "send":
            sends.append(line)
        elif line["f"] == "poll" and line.get("value") is not None:
            at[line["value"]] = (line["partition"], line["offset"])
    reads: list[Line] = []
    for number, value in enumerate(processed):
        partition, offset = at.get(value, (None, None))
        reads.append(
            {
                "process": APPLICATION,
                "client": APPLICATION,
                "f": "poll",
                "type": "ok",
                "op": 2 * _OP + number,
                "index": 2 * _OP + number,
                "topic": topic,
                "partition": partition,
                "offset": -1 if offset is None else offset,
                "value": value,
                "n": 1,
            }
        )
    return sends + reads


def longest_wait(lines: Iterable[Mapping[str, Any]], topic: str) -> tuple[float, int, int] | None:
    """How long a producer of the topic worked without an acknowledgement, at the longest: seconds,
    the wait's start (t_ns), and the number of acknowledgements; None where nothing was sent."""
    marks: dict[str, list[int]] = defaultdict(list)
    ends: dict[str, int] = {}
    acknowledged = 0
    for line in lines:
        if line["f"] != "send" or line.get("topic") != topic or "t_ns" not in line:
            continue
        producer = line["process"].rpartition("-")[0]
        if producer not in ends or line["type"] == "ok":
            marks[producer].append(line["t_ns"])
        acknowledged += line["type"] == "ok"
        ends[producer] = max(line["t_ns"], ends.get(producer, 0))
    waits = [
        (later - earlier, earlier)
        for producer, times in marks.items()
        for earlier, later in zip(sorted(times), [*sorted(times)[1:], ends[producer]], strict=True)
    ]
    if not waits:
        return None
    longest, began = max(waits)
    return longest / 1e9, began, acknowledged
