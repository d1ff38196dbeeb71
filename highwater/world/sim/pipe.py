"""The way between the two ends of a simulated connection: links, and bytes in flight."""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from highwater.world.chance import Random
    from highwater.world.sim.kernel import Kernel, Timer
    from highwater.world.sim.process import Host

RETRANSMIT_SECONDS = 15.0
CORK_SECONDS = 0.2
_SPLIT_CHANCE = 1 / 32


@dataclass(slots=True)
class Link:
    """One direction between two machines."""

    delay_s: tuple[float, float] = (0.0002, 0.001)
    bytes_per_s: float | None = None
    cut: bool = False


class End(Protocol):
    """An end of a connection (`network.SimConnection`)."""

    host: Host
    label: str

    def arrived(self, kind: str, data: bytes) -> None: ...

    def broken(self, number: int) -> None:
        """Ends with this errno."""


class Wires(Protocol):
    """All links (`network.Fabric`)."""

    kernel: Kernel
    random: Random
    waiting: list[Pipe[Any]]
    """The pipes that hold bytes back, because the link is cut or the machine is down."""

    def link(self, source: Host, target: Host) -> Link: ...


Ends = TypeVar("Ends", bound="End")


class Pipe(Generic[Ends]):
    """One direction of a connection: bytes in flight, in order."""

    __slots__ = (
        "arrives",
        "cork_ends",
        "corked",
        "fabric",
        "held",
        "link",
        "on_way",
        "patience",
        "sink",
        "source",
    )

    def __init__(self, fabric: Wires, source: Ends, sink: Ends) -> None:
        self.fabric = fabric
        self.link = fabric.link(source.host, sink.host)
        self.source = source
        self.sink = sink
        self.arrives = 0.0
        self.on_way = 0
        self.held: deque[tuple[str, bytes]] = deque()
        self.patience: Timer | None = None
        self.corked = b""
        self.cork_ends: Timer | None = None

    def cork(self, data: bytes) -> None:
        """Holds data back for the next send (MSG_MORE); not for long, as on Linux."""
        self.on_way += len(data)
        if not self.corked:
            self.cork_ends = self.fabric.kernel.timeline.after(CORK_SECONDS, self.uncork)
        self.corked += data

    def uncork(self) -> None:
        if self.corked:
            self.send("data")

    def _take_corked(self) -> bytes:
        corked, self.corked = self.corked, b""
        self.on_way -= len(corked)
        if self.cork_ends is not None:
            self.cork_ends.cancel()
        return corked

    def drop_corked(self) -> None:
        if self.corked:
            self._take_corked()

    def send(self, kind: str, data: bytes = b"") -> None:
        """Sends data or a signal; `kind` is "data", "end" (FIN) or "reset" (RST)."""
        if self.corked:
            corked = self._take_corked()
            if kind == "data":
                data = corked + data
            elif kind == "end":
                self._send("data", corked)
        random = self.fabric.random
        if random.random() < _SPLIT_CHANCE and len(data) > 1:
            at = random.randrange(1, len(data))
            self._send(kind, data[:at])
            data = data[at:]
        self._send(kind, data)

    def _send(self, kind: str, data: bytes) -> None:
        link, fabric = self.link, self.fabric
        least, most = link.delay_s
        timeline = fabric.kernel.timeline
        arrives = timeline.now + least + (most - least) * fabric.random.random()
        if link.bytes_per_s:
            arrives += len(data) / link.bytes_per_s
        self.on_way += len(data)
        if arrives > self.arrives:
            self.arrives = arrives
        timeline.at(self.arrives, self._arrive, kind, data)

    def _arrive(self, kind: str, data: bytes) -> None:
        fabric = self.fabric
        if self.held or self.link.cut or not self.sink.host.up:
            if not self.held:
                fabric.waiting.append(self)
                self.patience = fabric.kernel.timeline.after(RETRANSMIT_SECONDS, self._give_up)
            self.held.append((kind, data))
            return
        self.on_way -= len(data)
        fabric.kernel.note("net", self.sink.label, kind, len(data))
        self.sink.arrived(kind, data)

    def _give_up(self) -> None:
        self.fabric.waiting.remove(self)
        self.held.clear()
        self.source.broken(errno.ETIMEDOUT)

    def retry(self) -> None:
        """Sends held bytes again, as the link may have healed."""
        if self.patience is not None:
            self.patience.cancel()
        held, self.held = self.held, deque()
        for kind, data in held:
            self.on_way -= len(data)
            self._send(kind, data)
