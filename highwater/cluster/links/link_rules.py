"""The traffic that passes: cut directions between members, and rules that hold or drop single
messages.

Theory of operation.  A *member* is "broker-1", "zookeeper" or "clients".  A direction is an ordered
pair of members.  `cut` closes it, and every pipe that carries bytes that way stops at once, even in
the middle of a frame.  The bytes are kept, as TCP's retransmission would keep them, and flow on
after `heal`; a connection that either side gave up meanwhile is gone.  A connection is made only
while both directions are open, because the kernel's handshake needs both.

A *rule* waits for messages in one direction: requests or answers of one API (or of one ZooKeeper
operation, optionally on paths that match).  `hold` stops the first such message, and with it
everything behind it on that connection (a pipe never reorders), until `release`.  `drop` swallows
the message, and for ZooKeeper the connection with it.  The effects of a rule are counted, because a
fault without a visible effect voids the run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

import trio

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


@dataclass(slots=True, eq=False)
class Rule:
    """`source` and `target` are the message's own: an answer travels back to the requester."""

    action: Action
    api: str
    side: Side = Side.REQUEST
    source: str = ANY
    target: str = ANY
    path: str = ""
    """A regular expression that one of the znodes must match."""
    limit: int = 1
    """The number of messages that it takes; 0: all of them until it is released."""
    matched: int = 0
    arrived: int = 0
    """The number of its held messages that went on."""
    lost: int = 0
    """The number that did not, because their connection had ended."""
    released: trio.Event = field(default_factory=trio.Event)

    def takes(self, message: Message) -> bool:
        return (
            not self.released.is_set()
            and (self.limit == 0 or self.matched < self.limit)
            and self.api == message.api
            and self.side is message.side
            and self.source in (ANY, message.source)
            and self.target in (ANY, message.target)
            and (not self.path or any(re.search(self.path, p) for p in message.paths))
        )


class Links:
    """The state of all links of one cluster, obeyed by the proxies."""

    def __init__(self) -> None:
        self._cut: set[tuple[str, str]] = set()
        self._changed = trio.Event()
        self.rules: list[Rule] = []
        self.stopped: Counter[tuple[str, str]] = Counter()
        """Pipes and connection attempts that met a cut direction, by direction."""
        self.answers: Counter[tuple[str, str]] = Counter()
        """The number of answers with an error by (API, error), as far as the proxies read them."""
        self.passed: Counter[tuple[str, str]] = Counter()
        """The number of messages passed, by (source, target)."""
        self.connections: Counter[tuple[str, str]] = Counter()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def cut(self, source: str, target: str) -> None:
        self._cut.add((source, target))
        self._change()

    def heal(self, source: str = ANY, target: str = ANY) -> None:
        self._cut = {
            (s, t) for s, t in self._cut if not (source in (ANY, s) and target in (ANY, t))
        }
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

    def add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def release(self, rule: Rule) -> None:
        rule.released.set()
        if rule in self.rules:
            self.rules.remove(rule)

    def rule_for(self, message: Message) -> Rule | None:
        """The first rule that takes this message; counts the message."""
        for rule in self.rules:
            if rule.takes(message):
                rule.matched += 1
                return rule
        return None

    def heal_all(self) -> None:
        for rule in list(self.rules):
            self.release(rule)
        self.heal()

    def answered(self, error: int) -> int:
        """The number of partitions answered with this error code, as far as the proxies read
        them."""
        return sum(n for (_, code), n in self.answers.items() if code == str(error))
