"""The traffic that passes: cut directions between members, and rules that hold, drop or answer
single messages.

Theory of operation.  A *member* is "broker-1", "zookeeper" or "clients".  A direction is an ordered
pair of members.  `cut` closes it, and every pipe that carries bytes that way stops at once, even in
the middle of a frame.  The bytes are kept, as TCP's retransmission would keep them, and flow on
after `heal`; a connection that either side gave up meanwhile is gone.  A connection is made only
while both directions are open, because the kernel's handshake needs both.

A *rule* waits for messages in one direction: requests or answers of one API (or of one ZooKeeper
operation, optionally on paths that match).  `hold` stops the first such message, and with it
everything behind it on that connection (a pipe never reorders), until `release`.  `drop` swallows
the message, and for ZooKeeper the connection with it.  `answer` gives a client an error, instead of
asking the broker or within the broker's answer (`answering`); that answer can still be held or
dropped.  A *slowness* delays all traffic in a direction, and `reset` ends the connections between
two members.  All effects are counted, because a fault without a visible effect voids the run.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import trio

from highwater.cluster.links.slowness import Slowness

ANY = "*"
CLIENTS = "clients"
ZOOKEEPER = "zookeeper"


def broker(number: int) -> str:
    return f"broker-{number}"


class Side(Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Action(Enum):
    HOLD = "hold"
    DROP = "drop"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Message:
    """The message that a pipe is about to pass on."""

    source: str
    target: str
    side: Side
    api: str
    """Kafka's name of the API, or ZooKeeper's of the operation (setData, multi, ...)."""
    paths: tuple[str, ...] = ()
    client_id: str | None = None
    """The client id of the request, or of the request that this message answers."""
    topic: str | None = None
    """The first topic of a Produce request; None in other messages, or where it is not known."""


@dataclass(slots=True, eq=False)
class Rule:
    """Takes messages that fit it.  `source` and `target` are the message's: an answer's target is
    the requester."""

    action: Action
    api: str
    side: Side = Side.REQUEST
    source: str = ANY
    target: str = ANY
    path: str = ""
    """A regular expression that one of the znodes must match."""
    topic: str = ""
    """A Produce request whose first topic is another one is not taken."""
    client: str = ""
    """A regular expression that the client id must match."""
    limit: int = 1
    """The number of messages that it takes; 0: all of them until it is released."""
    matched: int = 0
    arrived: int = 0
    """The number of its held messages that went on."""
    lost: int = 0
    """The number of its held messages that did not go on, because their connection had ended."""
    released: trio.Event = field(default_factory=trio.Event)
    error: int = 0
    """The error code of its answers, given for the partitions that `topic` and `partition` name."""
    partition: int | None = None
    throttle_ms: int = 0
    every: int = 1
    """It answers every n-th of the messages that it could answer, each with `probability`."""
    probability: float = 1.0
    rng: random.Random = field(default_factory=random.Random)
    could: int = 0
    """The number of messages that it could have answered."""
    answered: Counter[str] = field(default_factory=Counter)
    """The number of messages that it answered, by client id."""
    closed: int = 0
    """The number of messages with acks=0, whose connections it closed instead of answering."""
    unread: int = 0
    """The number of messages that it could not read."""

    def is_due(self) -> bool:
        """Counts a message that it could answer; returns whether it shall answer this one."""
        self.could += 1
        if self.could % self.every:
            return False
        if self.probability < 1 and self.rng.random() >= self.probability:
            return False
        self.matched += 1
        return True

    def takes(self, message: Message) -> bool:
        return (
            not self.released.is_set()
            and (self.limit == 0 or self.matched < self.limit)
            and self.api == message.api
            and self.side is message.side
            and self.source in (ANY, message.source)
            and self.target in (ANY, message.target)
            and (not self.path or any(re.search(self.path, p) for p in message.paths))
            and (not self.topic or message.topic in (None, self.topic))
            and (not self.client or bool(re.search(self.client, message.client_id or "")))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """A connection through a proxy."""

    source: str
    target: str
    reset: Callable[[], None]


class Links:
    """The state of all links of one cluster, obeyed by the proxies."""

    def __init__(self, *, encrypted_clients: bool = False) -> None:
        self.encrypted_clients = encrypted_clients
        """Whether clients use TLS, so that the proxies cannot see their messages."""
        self._cut: Counter[tuple[str, str]] = Counter()
        """How often each direction was cut: two faults may cut the same one."""
        self._changed = trio.Event()
        self.rules: list[Rule] = []
        self.stopped: Counter[tuple[str, str]] = Counter()
        """Pipes and connection attempts that met a cut direction, by direction."""
        self.answers: Counter[tuple[str, str]] = Counter()
        """The number of answers with an error by (API, error), as far as the proxies read them."""
        self.passed: Counter[tuple[str, str]] = Counter()
        """The number of messages passed, by (source, target)."""
        self.connections: Counter[tuple[str, str]] = Counter()
        self.live: set[Connection] = set()
        self.names: dict[str, str] = {}
        """The name that a client id suggests -> the member's real name, where these differ, as for
        controllers in processes of their own."""
        self.topic_ids: dict[Any, str] = {}
        """Topic id -> name, learnt from answers to clients."""
        self._slow: dict[tuple[str, str], list[Slowness]] = {}
        self.on_touch: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
        """Takes the proxies' ports back from members that have borrowed them."""

    async def touch(self) -> None:
        """Makes all traffic pass through the proxies from now on; call it before a fault."""
        await self.on_touch()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def cut(self, source: str, target: str) -> None:
        self._cut[source, target] += 1
        self._change()

    def heal(self, source: str = ANY, target: str = ANY) -> None:
        """Opens these directions, however often they were cut."""
        for way in self.cuts:
            if source in (ANY, way[0]) and target in (ANY, way[1]):
                del self._cut[way]
        self._change()

    def take_back(self, source: str, target: str) -> None:
        """Undoes one `cut`; the direction stays closed if it was cut a second time."""
        self._cut[source, target] -= 1
        if self._cut[source, target] <= 0:
            del self._cut[source, target]
        self._change()

    @property
    def cuts(self) -> list[tuple[str, str]]:
        return sorted(self._cut)

    async def wait_open(self, *directions: tuple[str, str]) -> None:
        """Returns when all these directions are open."""
        closed = [d for d in directions if d in self._cut]
        if not closed:
            return
        for direction in closed:
            self.stopped[direction] += 1
        while any(d in self._cut for d in directions):
            await self._changed.wait()

    def slow(self, slowness: Slowness, *directions: tuple[str, str]) -> None:
        for direction in directions:
            self._slow.setdefault(direction, []).append(slowness)

    def quicken(self, slowness: Slowness) -> None:
        """Undoes a `slow`."""
        slowness.over.set()
        for direction, slow in list(self._slow.items()):
            self._slow[direction] = [one for one in slow if one is not slowness]

    def slowness(self, direction: tuple[str, str]) -> list[Slowness]:
        return self._slow.get(direction, [])

    def is_slowed_by(self, slowness: Slowness) -> bool:
        return any(slowness in slow for slow in self._slow.values())

    @contextmanager
    def carrying(self, connection: Connection) -> Iterator[None]:
        self.live.add(connection)
        try:
            yield
        finally:
            self.live.discard(connection)

    def reset(self, *pairs: tuple[str, str]) -> int:
        """Resets each connection from the first member of a pair to the second; gives how many."""
        chosen = [c for c in self.live if (c.source, c.target) in pairs]
        for connection in chosen:
            connection.reset()
        return len(chosen)

    def add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def release(self, rule: Rule) -> None:
        rule.released.set()
        if rule in self.rules:
            self.rules.remove(rule)

    def rule_for(self, message: Message) -> Rule | None:
        """The first rule that holds or drops this message; counts the message."""
        for rule in self.rules:
            if rule.action is not Action.ANSWER and rule.takes(message):
                rule.matched += 1
                return rule
        return None

    def answering(self, message: Message) -> list[Rule]:
        """The rules that answer this message, if they can."""
        return [r for r in self.rules if r.action is Action.ANSWER and r.takes(message)]

    def heal_all(self) -> None:
        for rule in list(self.rules):
            self.release(rule)
        for one in {one for slow in self._slow.values() for one in slow}:
            self.quicken(one)
        self.heal()

    def answered(self, error: int) -> int:
        """The number of partitions answered with this error code, as far as the proxies read
        them."""
        return sum(n for (_, code), n in self.answers.items() if code == str(error))
