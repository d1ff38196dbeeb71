"""Adds the application under test to a history: what it wrote and processed, and which writes were
acknowledged.

The history's own clients record everything about themselves.  The application records nothing, so
these functions make lines for it.  A record that was read and that no client of the history sent
becomes a send of unknown outcome; values that were acknowledged to the application become
acknowledged sends; values that it processed become its reads.  Then the checks judge it like any
client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

APPLICATION: Final = "the application"
_OP: Final = 1 << 40
"""The first operation number of made lines: above those of the history's own clients."""
SHOWN: Final = 60
"""How many characters of a value a story shows."""
Line = dict[str, Any]


def with_application(
    lines: Iterable[Line], run: str, topic: str, acknowledged: Sequence[str] = ()
) -> list[Line]:
    """The lines on one topic, and the application's sends to it.

    A value that has the form of this run's own but was not sent by its clients is damaged: no send
    is made for it.
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
    """A value's name; a number distinguishes equal values in several places or of several keys."""
    return f"{value} #{number + 1}" if number else value


def _send(
    op: int, topic: str, value: str, ending: str, place: tuple[int, str | None] | None
) -> list[Line]:
    partition, key = place or (None, None)
    common = {"process": APPLICATION, "client": APPLICATION, "f": "send", "op": op, "index": op}
    common |= {"topic": topic, "partition": partition, "key": key, "value": value, "acks": -1}
    # the time of the send is unknown: 0 is so early that no check of real-time order can object
    return [{**common, "type": "invoke", "t_ns": 0}, {**common, "type": ending}]


def as_processed(lines: Iterable[Line], topic: str, processed: Sequence[str]) -> list[Line]:
    """The sends to the topic, and as the only reads those of the application, which read
    `processed` in this order."""
    sends: list[Line] = []
    places = _places(lines)
    for line in lines:
        if line["f"] == "send":
            found = places.get(line["value"], {}) if line["type"] == "ok" else {}
            sends.append({**found, **line})
    reads: list[Line] = []
    for number, value in enumerate(_told_apart(processed, places)):
        place: Mapping[str, int | None] = places.get(value, {"partition": None, "offset": -1})
        reads.append(
            {
                "process": APPLICATION,
                "client": APPLICATION,
                "f": "poll",
                "type": "ok",
                "op": 2 * _OP + number,
                "index": 2 * _OP + number,
                "topic": topic,
                **place,
                "value": value,
                "n": 1,
            }
        )
    return sends + reads


@dataclass(frozen=True, slots=True)
class OutOfTurn:
    """A value that the application processed again, or after a later one of its partition."""

    partition: int
    offset: int
    story: str


def out_of_turn(lines: Iterable[Line], topic: str, processed: Sequence[str]) -> list[OutOfTurn]:
    """Values that were processed more often than the topic has them, and then those that were
    processed too late, each in the order of `processed`."""
    places = _places(lines)
    ambiguous = {value for value in places if _named(value, 1) in places}
    named = [*_told_apart(processed, places)]
    at: dict[str, list[int]] = defaultdict(list)
    furthest: dict[int, int] = {}
    """Partition -> the index of the value with the greatest offset so far."""
    late: list[OutOfTurn] = []

    def told(index: int) -> str:
        place = places[named[index]]
        where = f"record {place['offset']} of {topic}-{place['partition']}"
        return f"{where} ({processed[index][:SHOWN]})"

    def found(index: int, story: str) -> OutOfTurn:
        return OutOfTurn(**places[named[index]], story=story)

    for index, value in enumerate(named):
        at[value].append(index)
        if value not in places or len(at[value]) > 1 or processed[index] in ambiguous:
            continue
        before = furthest.setdefault(places[value]["partition"], index)
        if places[named[before]]["offset"] <= places[value]["offset"]:
            furthest[places[value]["partition"]] = index
            continue
        story = f"{told(index)} was processed by {APPLICATION} as number {index + 1}"
        late.append(found(index, f"{story}, after {told(before)}, its number {before + 1}"))
    often = [indexes for value, indexes in at.items() if value in places and len(indexes) > 1]
    often.sort(key=lambda indexes: indexes[1])
    many = f" ({len(often)} of {len(at)} values)" if often else ""
    repeated = [found(i[0], told(i[0]) + _of_a_repeat(processed, i) + many) for i in often]
    return repeated + late


def _of_a_repeat(processed: Sequence[str], at: Sequence[int]) -> str:
    """Says when the value at these indexes was processed, and what came in between."""
    first, again = at[:2]
    between = [value[:SHOWN] for value in processed[first + 1 : again]]
    if len(between) > 2:
        what = f"{len(between)} others, from {between[0]} to {between[-1]},"
    else:
        what = " and ".join(between) or "nothing"
    often = "twice" if len(at) == 2 else f"{len(at)} times"
    return (
        f" was processed {often} by {APPLICATION}: as number {first + 1} and as number {again + 1}"
        f" of {len(processed)}, with {what} in between"
    )


def _places(lines: Iterable[Line]) -> dict[str, dict[str, int]]:
    """Where each value of the topic was read."""
    return {
        line["value"]: {"partition": line["partition"], "offset": line["offset"]}
        for line in lines
        if line["f"] == "poll" and line.get("value") is not None
    }


def _told_apart(processed: Iterable[str], places: Mapping[str, object]) -> Iterator[str]:
    """The values under the names that `with_application` gives to equal ones, as far as the topic
    has that many of them."""
    counts: dict[str, int] = defaultdict(int)
    for value in processed:
        named = _named(value, counts[value])
        if named not in places:
            named = value
        counts[value] += 1
        yield named


@dataclass(frozen=True, slots=True)
class Wait:
    """The longest time in which a producer waited for an acknowledgement of one partition."""

    partition: int
    longest_s: float
    began_ns: int
    """When the wait began, by the history's clock."""
    acknowledged: int
    """How many records of the partition were acknowledged, to all producers."""


def longest_waits(
    lines: Iterable[Mapping[str, Any]], topic: str, at_work: Iterable[str] = (), now_ns: int = 0
) -> list[Wait]:
    """The longest wait in each partition to which something was sent.

    A producer waits in a partition while a send of its own there is unanswered.  A wait lasts until
    the producer's next acknowledgement there, which begins the next wait if more is unanswered.  A
    wait without one lasts until the producer's last line, or until now if it is still `at_work`.
    """
    since: dict[tuple[str, int], int] = {}
    unanswered: dict[tuple[str, int], set[int]] = defaultdict(set)
    longest: dict[int, tuple[int, int]] = {}
    acknowledged: dict[int, int] = defaultdict(int)
    ends: dict[str, int] = {}

    def waited(key: tuple[str, int], until: int) -> None:
        began = since.pop(key, until)
        longest[key[1]] = max(longest.get(key[1], (0, began)), (until - began, began))

    sends = [
        line
        for line in lines
        if line["f"] == "send"
        and line.get("topic") == topic
        and line.get("partition") is not None
        and "t_ns" in line
    ]
    for line in sorted(sends, key=lambda line: (line["t_ns"], line["type"] != "invoke")):
        producer = line["process"].rpartition("-")[0]
        key = (producer, line["partition"])
        now = ends[producer] = line["t_ns"]
        if line["type"] == "invoke":
            unanswered[key].add(line["op"])
            since.setdefault(key, now)
            continue
        unanswered[key].discard(line["op"])
        if line["type"] == "ok":
            acknowledged[key[1]] += 1
            waited(key, now)
            if unanswered[key]:
                since[key] = now
    ends |= dict.fromkeys(at_work, now_ns)
    for key in list(since):
        waited(key, ends[key[0]])
    return [
        Wait(partition, wait / 1e9, began, acknowledged[partition])
        for partition, (wait, began) in sorted(longest.items())
    ]
