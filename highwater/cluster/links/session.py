"""One connection through a proxy: the state that its two pipes share."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import trio

from highwater.cluster.links.link_rules import Links, Rule, Side
from highwater.cluster.links.slowness import Lane


@dataclass(slots=True, eq=False)
class Asked:
    """A Kafka request that is not answered yet."""

    correlation_id: int
    api_key: int
    version: int
    client_id: str | None
    silent: bool = False
    """Whether it gets no answer, as a Produce request with acks=0."""
    answer: bytes | None = None
    """The proxy's own answer, without its size; None: the member answers."""


@dataclass(slots=True, eq=False)
class Handed:
    """A connection that a member served without the proxy until now (`lending`)."""

    near: trio.SocketStream
    far: trio.SocketStream
    client_id: str | None
    """None if the client has sent no request yet."""
    unanswered: list[Asked]
    unsent: int
    """How many bytes of earlier answers the member still sends before it answers `unanswered`."""
    unread: bytes
    """The bytes that the client has sent after `unanswered`."""


@dataclass(slots=True)
class Session:
    source: str
    target: str
    near: trio.SocketStream
    far: trio.SocketStream
    links: Links
    number: int = 0
    asked: deque[Asked] = field(default_factory=deque)
    """The requests that are not answered yet, in the order in which they will be."""
    answering: trio.Lock = field(default_factory=trio.Lock)
    """Held from the moment when an answer's turn has come until its last byte is on its way."""
    zk_asked: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    shaken: set[Side] = field(default_factory=set)
    """ZooKeeper: the sides whose handshake is over."""
    waiting: deque[tuple[Rule | None, bytes]] = field(default_factory=deque)
    """ZooKeeper: a held request and all later ones; only pings overtake them."""
    waiting_changed: trio.Event = field(default_factory=trio.Event)
    in_order: bool = False
    """Whether the far side has closed, and everything from there went on."""
    unsent: int = 0
    """The bytes of answers that had begun to leave when the proxy took over.  While there are some,
    the first entry of `asked` stands for them."""
    lanes: dict[Side, Lane] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = {side: self._lane(side) for side in Side}

    def inherit(self, handed: Handed) -> None:
        self.asked.extend(handed.unanswered)
        self.unsent = handed.unsent
        if self.unsent:
            self.asked.appendleft(Asked(-1, -1, -1, None))

    def _lane(self, side: Side) -> Lane:
        way, onward = (self.source, self.target), self.far
        if side is Side.RESPONSE:
            way, onward = way[::-1], self.near
        lock = trio.Lock()

        async def send(piece: bytes) -> None:
            await self.links.wait_open(way)
            async with lock:
                await onward.send_all(piece)

        return Lane(lambda: self.links.slowness(way), send)

    def wait_behind(self, rule: Rule | None, frame: bytes) -> None:
        self.waiting.append((rule, frame))
        self.waiting_changed.set()

    def own_answers(self, before: int | None = None) -> list[Asked]:
        """Removes from `asked` the oldest requests that the proxy answers itself, and returns them.

        `before`: the member answers the request with this correlation id now, so all earlier ones
        go; those among them that the proxy does not answer get no answer.
        """
        found: list[Asked] = []
        while self.asked and (self.asked[0].answer is not None or before is not None):
            if self.asked[0].answer is not None:
                found.append(self.asked.popleft())
            elif self.asked[0].correlation_id == before:
                break
            else:
                self.asked.popleft()
        return found
