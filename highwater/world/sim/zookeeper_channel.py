"""Requests of a simulated ZooKeeper session, and the two directions of its connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio

if TYPE_CHECKING:
    from highwater.world.api import Watcher, ZkError
    from highwater.world.sim.kernel import Kernel
    from highwater.world.sim.process import Host

_POLL_SECONDS = 0.02


@dataclass(eq=False, slots=True)
class Call:
    """One request of a session."""

    what: str
    path: str
    body: Any = None
    watcher: Watcher | None = None
    done: trio.Event = field(default_factory=trio.Event)
    result: Any = None
    error: ZkError | None = None
    applied: bool = False
    lost: bool = False

    def fail(self, error: ZkError) -> None:
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Way(Protocol):
    """The network between the machines of sessions (`zookeeper.ZooKeeperService`)."""

    kernel: Kernel

    def delay(self, source: Host, target: Host) -> float:
        """The seconds until the next message arrives."""

    def open_between(self, source: Host, target: Host) -> bool: ...


class Channel:
    """One direction of a session's connection: in order, and held while the link is cut."""

    def __init__(self, way: Way, source: Host, target: Host) -> None:
        self._way = way
        self._source = source
        self._target = target
        self._queue: deque[tuple[float, Callable[..., object], tuple[Any, ...]]] = deque()
        self._last = 0.0
        self._closed = False

    def send(self, deliver: Callable[..., object], *args: Any) -> None:
        timeline = self._way.kernel.timeline
        delay = self._way.delay(self._source, self._target)
        self._last = max(self._last, timeline.now + delay)
        self._queue.append((self._last, deliver, args))
        timeline.at(self._last, self._move)

    def close(self) -> None:
        self._closed = True
        self._queue.clear()

    def _move(self) -> None:
        timeline = self._way.kernel.timeline
        while self._queue and self._queue[0][0] <= timeline.now and not self._closed:
            if not self._way.open_between(self._source, self._target):
                timeline.after(_POLL_SECONDS, self._move)
                return
            _, deliver, args = self._queue.popleft()
            deliver(*args)
