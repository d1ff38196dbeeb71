"""The sends of one topic that the watch still needs: those in flight, and those that ended without
a place (a partition and offset).  Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import astuple, dataclass
from typing import Any, Final

KEPT_WITHOUT_A_PLACE: Final = 200_000
"""How many sends without a binding acknowledgement are kept: any of them may still appear."""
NEIGHBOURS: Final = 512
"""With how many of a producer's acknowledged sends in a partition a new one is compared."""
SETTLED_NS: Final = 2_000_000_000
"""After this time, no line of another process with an earlier time will come any more."""


@dataclass(slots=True)
class Send:
    hash: int
    process: str
    place: int
    """Its number among the topic's sends."""
    started_ns: int
    client: str
    idempotent: bool
    in_order: bool
    partition: int | None
    """The partition that the client requested."""
    known: int
    """The highest offset acknowledged in that partition before the send began, or -1."""
    key: int
    repeated: bool = False
    """Whether the application attempted this value more than once."""

    @property
    def strict(self) -> bool:
        """Whether a second copy of the value breaks a promise.  A copy that librdkafka makes under
        a raised epoch does not (C2 in docs/rules.md), but only producer epochs distinguish it."""
        return self.idempotent and not self.repeated and self.client != "confluent-kafka"


class Acknowledged:
    """The highest acknowledged offset of a partition at each time of the last seconds."""

    def __init__(self, times: list[int] | None = None, highest: list[int] | None = None) -> None:
        self.times = times or []
        self.highest = highest or []

    def add(self, t_ns: int, offset: int) -> None:
        at = bisect_left(self.times, t_ns)
        if at < len(self.times):  # it came late: the entries for later times stay right
            for later in range(at, len(self.times)):
                self.highest[later] = max(self.highest[later], offset)
        below = self.highest[at - 1] if at else -1
        self.times.insert(at, t_ns)
        self.highest.insert(at, max(below, offset))
        old = bisect_left(self.times, self.times[-1] - SETTLED_NS) - 1
        if old > 1000:
            del self.times[:old], self.highest[:old]

    def before(self, t_ns: int) -> int:
        """The highest offset that was acknowledged before, or -1."""
        at = bisect_left(self.times, t_ns)
        return self.highest[at - 1] if at else -1


class Order:
    """The places and offsets of one producer's sends in one partition (C10)."""

    def __init__(self, pairs: list[tuple[int, int]] | None = None, used_ns: int = 0) -> None:
        self.pairs = pairs or []
        self.used_ns = used_ns

    def add(self, place: int, offset: int, t_ns: int) -> tuple[int, int] | None:
        """Gives the (earlier offset, later offset) that are in the wrong order, if any are."""
        insort(self.pairs, (place, offset))
        self.used_ns = max(self.used_ns, t_ns)
        at = bisect_left(self.pairs, (place, offset))
        wrong = None
        if at and self.pairs[at - 1][1] > offset:
            wrong = (self.pairs[at - 1][1], offset)
        elif at + 1 < len(self.pairs) and self.pairs[at + 1][1] < offset:
            wrong = (offset, self.pairs[at + 1][1])
        if wrong is not None:
            del self.pairs[at]  # report it once, and not again with each neighbour
        elif len(self.pairs) > 2 * NEIGHBOURS:
            del self.pairs[:NEIGHBOURS]
        return wrong


class Sends:
    def __init__(self) -> None:
        self.count = 0
        self.open: dict[tuple[int, int], Send] = {}
        """(Operation, hash) -> the send; one operation may send several values."""
        self.open_by_hash: dict[int, int] = {}
        self.placeless: dict[int, tuple[Send, int, bool]] = {}
        """Hash -> (the send, when it ended, whether it failed for certain)."""
        self.forgot = False
        """Whether a send without a place was forgotten because there were too many."""

    def begin(self, op: int, send: Send) -> None:
        self.count += 1
        if send.hash in self.open_by_hash or send.hash in self.placeless:
            send.repeated = True
            if (other := self.of(send.hash)) is not None:
                other.repeated = True
        self.open[op, send.hash] = send
        self.open_by_hash[send.hash] = op

    def end(self, op: int, hash_: int) -> Send | None:
        send = self.open.pop((op, hash_), None)
        if send is not None and self.open_by_hash.get(send.hash) == op:
            del self.open_by_hash[send.hash]
        return send

    def keep(self, send: Send, t_ns: int, failed: bool = False) -> None:
        """Keeps a send that ended without a binding acknowledgement."""
        failed = failed and not send.repeated
        self.placeless[send.hash] = (send, t_ns, failed)
        if len(self.placeless) > KEPT_WITHOUT_A_PLACE:
            del self.placeless[next(iter(self.placeless))]
            self.forgot = True

    def of(self, hash_: int) -> Send | None:
        """The send of this content, if it is in flight or ended without a place."""
        op = self.open_by_hash.get(hash_)
        if op is not None:
            return self.open[op, hash_]
        kept = self.placeless.get(hash_)
        return kept[0] if kept is not None else None

    def failed(self, hash_: int) -> Send | None:
        """The send of this content, if it failed for certain and nothing else sent it."""
        kept = self.placeless.get(hash_)
        return kept[0] if kept is not None and kept[2] and not kept[0].repeated else None

    def forget(self, before_ns: int) -> None:
        for op, hash_ in [at for at, send in self.open.items() if send.started_ns < before_ns]:
            if (send := self.end(op, hash_)) is not None:
                self.keep(send, send.started_ns)
        while self.placeless:  # in the order of their ends, but for a few
            hash_, (_, t_ns, _) = next(iter(self.placeless.items()))
            if t_ns >= before_ns:
                break
            del self.placeless[hash_]

    def dump(self) -> tuple[Any, ...]:
        opened = [(op, astuple(send)) for (op, _), send in self.open.items()]
        kept = [(astuple(send), t_ns, failed) for send, t_ns, failed in self.placeless.values()]
        return (self.count, opened, kept, self.forgot)

    @classmethod
    def load(cls, state: tuple[Any, ...]) -> Sends:
        sends = cls()
        sends.count, opened, kept, sends.forgot = state
        for op, fields in opened:
            sends.open[op, fields[0]] = Send(*fields)
            sends.open_by_hash[fields[0]] = op
        for fields, t_ns, failed in kept:
            sends.placeless[fields[0]] = (Send(*fields), t_ns, failed)
        return sends
