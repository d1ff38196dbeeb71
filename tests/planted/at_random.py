"""Histories by the thousand: each a topic's run drawn by its number, with defects at random places.

A history is one topic of one to three partitions.  Sends that end well are mixed with what a
careless check would flag (unknown outcomes, refusals, holes, recognised duplicates); into most
partitions one defect is put, whose findings follow from where it was put: check and offset.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from highwater.verdict.results import Results
from tests.planted.story import Plant, Story, finish

Place = tuple[str, str, int | None, int | None]
"""Check, topic, partition, offset."""
Expected = set[tuple[str, int, int | None]]
"""Check, partition, offset of each violation."""


@dataclass(slots=True)
class Log:
    """One partition while its history is told; `next` is the next free offset."""

    story: Story
    rng: random.Random
    partition: int
    next: int = 0
    read_to: int = 0
    sent: int = 0

    def value(self) -> str:
        self.sent += 1
        return f"{self.story.topic}|{self.partition}|{self.sent}"

    def producer(self) -> str:
        return f"producer-{self.partition}-{self.rng.randrange(3)}"

    def take(self, count: int = 1) -> int:
        """The first of that many offsets."""
        self.next += count
        return self.next - count

    def send(self, value: str, offset: int, stored: bool = True) -> None:
        self.story.send(self.producer(), value, offset, stored, partition=self.partition)

    def sound_send(self) -> None:
        self.send(self.value(), self.take())

    def put(self, value: str, offset: int, key: str = "k") -> None:
        self.story.store(value, offset, self.partition, key)

    def unknown(self, value: str) -> None:
        self.story.unknown(self.producer(), value, partition=self.partition)

    def end(self, value: str, type_: str, **fields: object) -> None:
        send = self.story.invoke(self.producer(), value, self.partition)
        self.story.end(send, type_, **fields)  # type: ignore[arg-type]

    def poll(self) -> None:
        """The partition's consumer reads on, to some offset."""
        there = self.story.log.get(self.partition, {})
        upto = self.rng.randint(self.read_to, self.next)
        chosen = [(o, there[o][1]) for o in sorted(there) if self.read_to <= o < upto]
        self.read_to = upto
        if chosen:
            self.story.poll(f"consumer-{self.partition}", *chosen, partition=self.partition)


# --- what is not a defect


def _unknown_and_there(log: Log) -> None:
    value = log.value()
    log.unknown(value)
    log.put(value, log.take())


def _unknown_and_nowhere(log: Log) -> None:
    log.unknown(log.value())


def _refused(log: Log) -> None:
    log.end(log.value(), "fail", error="MESSAGE_TOO_LARGE")


def _hole(log: Log) -> None:
    log.take(log.rng.randint(1, 3))


def _recognised(log: Log) -> None:
    value = log.value()
    log.end(value, "ok", offset=-1)
    log.put(value, log.take())


SOUND: tuple[Callable[[Log], None], ...] = (
    *[Log.sound_send] * 8, *[Log.poll] * 3,
    _unknown_and_there, _unknown_and_nowhere, _refused, _hole, _recognised,
)  # fmt: skip


# --- defects: each gives the checks that find it, with the offset


def _lost(log: Log) -> dict[str, int | None]:
    at = log.take()
    log.send(log.value(), at, stored=False)
    log.sound_send()
    return {"C3": at, "C4": at}


def _lost_without_an_offset(log: Log) -> dict[str, int | None]:
    log.end(log.value(), "ok", offset=-1)
    return {"C4": None}


def _failed_but_read(log: Log) -> dict[str, int | None]:
    value, at = log.value(), log.take()
    log.end(value, "fail", error="NOT_ENOUGH_REPLICAS")
    log.put(value, at)
    return {"C6": at}


def _phantom(log: Log) -> dict[str, int | None]:
    at = log.take()
    log.put(log.value(), at)
    return {"C7": at}


def _another_key(log: Log) -> dict[str, int | None]:
    value, at = log.value(), log.take()
    log.send(value, at)
    log.put(value, at, key="other")
    return {"C7": at}


def _copy(log: Log) -> dict[str, int | None]:
    value, at = log.value(), log.take(2)
    log.send(value, at)
    log.put(value, at + 1)
    return {"C2": at}  # the first of the places


def _reordered(log: Log) -> dict[str, int | None]:
    producer, at = log.producer(), log.take(2)
    values = [log.value(), log.value()]
    sends = [log.story.invoke(producer, value, log.partition) for value in values]
    for send, offset in zip(sends, (at + 1, at), strict=True):
        log.story.end(send, "ok", offset)
        log.put(send["value"], offset)
    return {"C10": at}


def _before_its_time(log: Log) -> dict[str, int | None]:
    at = log.take(2)
    for nth, offset in enumerate((at + 1, at)):
        value = log.value()
        log.story.send(f"late-{log.partition}-{nth}", value, offset, partition=log.partition)
    return {"C11": at}


def _damaged(log: Log) -> dict[str, int | None]:
    value, at = log.value(), log.take()
    log.send(value, at, stored=False)
    log.put(f"{value}~", at)
    return dict.fromkeys(("C1", "C3", "C4", "C7"), at)


def _went_back(log: Log) -> dict[str, int | None]:
    """A consumer of its own gets a record again after its successor."""
    at = log.take(2)
    for offset in (at, at + 1):
        log.send(log.value(), offset)
    records = log.story.values(at, at + 1, partition=log.partition)
    for _ in range(2):
        log.story.poll(f"returning-{log.partition}", *records, partition=log.partition)
    return {"C9": at}


DEFECTS: tuple[Callable[[Log], dict[str, int | None]], ...] = (
    _lost, _lost_without_an_offset, _failed_but_read, _phantom, _another_key, _copy, _reordered,
    _before_its_time, _damaged, _went_back,
)  # fmt: skip
SOUND_SHARE = 0.3
"""Of all partitions."""


@dataclass(slots=True)
class History:
    """The one of this number, the same each time."""

    number: int
    expected: Expected = field(default_factory=set)
    defects: list[str] = field(default_factory=list)

    def plant(self) -> Plant:
        return Plant(f"random-{self.number}", frozenset(), frozenset(), self.tell, "")

    def tell(self, story: Story) -> None:
        rng = random.Random(self.number)
        self.expected.clear()
        self.defects.clear()
        for partition in range(rng.randint(1, 3)):
            log = Log(story, rng, partition)
            story.assign(f"consumer-{partition}", partition=partition)
            log.sound_send()
            steps = rng.randint(5, 25)
            when = -1 if rng.random() < SOUND_SHARE else rng.randrange(steps)
            for step in range(steps):
                if step == when:
                    defect = rng.choice(DEFECTS)
                    self.defects.append(defect.__name__)
                    found = defect(log)
                    self.expected |= {(c, partition, at) for c, at in found.items()}
                rng.choice(SOUND)(log)
            log.sound_send()
        finish(story)


def planted(topics: Iterable[str], histories: Iterable[History]) -> set[Place]:
    """The expected findings, once `story.write` has told these histories as these topics."""
    return {
        (check, topic, partition, offset)
        for topic, history in zip(topics, histories, strict=True)
        for check, partition, offset in history.expected
    }


def violations(result: Results) -> set[Place]:
    """The findings about topics; those about a run as a whole (too little shown) are left out."""
    return {
        (id_, one["topic"], one["partition"], one["offset"])
        for id_, check in result["checks"].items()
        for one in check["examples"]
        if one["kind"] == "violation" and one["topic"] is not None
    }


def differences(found: set[Place], wanted: set[Place]) -> list[str]:
    """One line for each place that only one of them has."""
    return [f"not found: {p}" for p in sorted(wanted - found, key=str)] + [
        f"not planted: {p}" for p in sorted(found - wanted, key=str)
    ]
