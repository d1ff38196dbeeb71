"""The brokers' traffic on the wire: one request can be held, or delivered late.

The tap sees the connections that brokers open (fetchers, the controller's channels, probes) and
reads only the head of each frame, for its API.  Two kinds of faults need that.

*Holding.*  `hold` waits for the next request of one API and delays that request, or its answer, by
some seconds, with everything after it on that connection in that direction, as a queue in the
network would.  Other connections are not touched, so it is a network partition that nobody can see.

*Stale requests.*  The controller's requests are kept, and `stale_request` picks one that its
receiver must refuse by now: it came from a controller that was replaced, or was meant for an
earlier life of the broker (KIP-380).  Delivering it again imitates a zombie controller that wakes
up; the broker must answer STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import decode_request
from highwater.kafka.wire.header import api_name, parse_request_header

if TYPE_CHECKING:
    from highwater.broker.services import Services
    from highwater.world.api import Buffer
    from highwater.world.sim.network import Fabric, SimConnection
    from highwater.world.sim.process import Process

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
CONTROL = (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
FETCH, OFFSETS_FOR_LEADER_EPOCH, WRITE_TXN_MARKERS = 1, 23, 27
CONSUMER_GROUP_HEARTBEAT, READ_SHARE_STATE, WRITE_SHARE_STATE = 68, 84, 85
REQUEST, ANSWER = "request", "answer"
_KEPT = 60
_HEAD = 8


class Sent(NamedTuple):
    """One request of a controller: the API, and the body without its header."""

    api_key: int
    version: int
    body: bytes

    @property
    def epochs(self) -> tuple[int, int]:
        """The controller epoch and the broker epoch in the request."""
        request = decode_request(self.api_key, self.version, memoryview(self.body))
        return request.controller_epoch, request.broker_epoch

    def __str__(self) -> str:
        controller, broker = self.epochs
        name = api_name(self.api_key)
        return f"{name} of controller epoch {controller} for broker epoch {broker}"


@dataclass(eq=False, slots=True)
class Hold:
    """A hold, armed for the next request of `api_key` between machines that `wanted` picks."""

    api_key: int
    what: str
    seconds: float
    wanted: Callable[[str, str], bool]
    fired: bool = False
    where: str = ""


class WireTap:
    """All connections that the brokers of one cluster open, and those of some clients."""

    def __init__(self, fabric: Fabric, brokers: Sequence[str]) -> None:
        self._fabric = fabric
        self._brokers = frozenset(brokers)
        self.clients: set[str] = set()
        """The clients whose connections are tapped, too."""
        self._connect = fabric.connect
        fabric.connect = self._tapped  # type: ignore[method-assign]
        self._holds: list[Hold] = []
        self.control: dict[str, deque[Sent]] = {name: deque(maxlen=_KEPT) for name in brokers}
        """The latest requests of controllers to each broker."""
        self.told = dict.fromkeys(brokers, 0)
        """How many requests controllers have sent to each broker."""
        self.on_request: list[Callable[[str, str, int], None]] = []
        """Called with the source, the target and the API of each request."""

    async def _tapped(self, process: Process, host: str, port: int) -> SimConnection:
        connection = await self._connect(process, host, port)
        if host in self._brokers and process.host.name in self._brokers | self.clients:
            _Stream(self, connection, process.host.name, host)
        return connection

    # -- holding --------------------------------------------------------------------------------

    def hold(
        self, api_key: int, what: str, seconds: float, wanted: Callable[[str, str], bool]
    ) -> Hold:
        """`what` is REQUEST or ANSWER.  `wanted(source, target)` gets the machines' names."""
        hold = Hold(api_key, what, seconds, wanted)
        self._holds.append(hold)
        return hold

    def release(self, hold: Hold) -> None:
        """Disarms a hold (a request that it already holds stays delayed)."""
        if hold in self._holds:
            self._holds.remove(hold)

    def request(self, connection: SimConnection, source: str, target: str, api_key: int) -> None:
        """Called when a request is about to be sent."""
        for call in self.on_request:
            call(source, target, api_key)
        for hold in self._holds:
            if hold.api_key == api_key and hold.wanted(source, target):
                pipe = connection.out if hold.what == REQUEST else connection.out.sink.out
                pipe.arrives = max(pipe.arrives, self._fabric.kernel.timeline.now + hold.seconds)
                hold.fired, hold.where = True, f"{source} to {target}"
                self._holds.remove(hold)
                return

    # -- late requests --------------------------------------------------------------------------

    def stale_request(
        self, name: str, services: Services | None, random: Any
    ) -> tuple[Sent, str] | None:
        """A request that this broker must refuse by now, and why; None where there is none."""
        if services is None:
            return None
        former, earlier = [], []
        for sent in self.control[name]:
            controller_epoch, broker_epoch = sent.epochs
            if controller_epoch < services.fence.controller_epoch:
                former.append((sent, "of a former controller"))
            elif -1 < broker_epoch < services.broker_epoch:
                earlier.append((sent, "for an earlier life"))
        kinds = [kind for kind in (former, earlier) if kind]
        return random.choice(random.choice(kinds)) if kinds else None


STALE = (int(ErrorCode.STALE_CONTROLLER_EPOCH), int(ErrorCode.STALE_BROKER_EPOCH))


class _Stream:
    """The frames in one connection's outgoing bytes."""

    __slots__ = ("_connection", "_frame", "_left", "_lost", "_send", "_source", "_tap", "_target")

    def __init__(self, tap: WireTap, connection: SimConnection, source: str, target: str) -> None:
        self._tap = tap
        self._connection = connection
        self._source = source
        self._target = target
        self._send = connection.send
        self._left = 0
        self._lost = False
        self._frame: bytearray | None = None
        """The part of the frame that has been written, if it is a controller's request."""
        connection.send = self.send  # type: ignore[method-assign]

    def send(self, views: Sequence[Buffer], more: bool = False) -> int | None:
        data = bytes(views[0]) if len(views) == 1 else b"".join(views)
        if not self._left and not self._lost and len(data) >= _HEAD:
            self._tap.request(
                self._connection, self._source, self._target, int.from_bytes(data[4:6], "big")
            )
        taken = self._send([data], more)
        if taken:
            self._take(data[:taken])
        return taken

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._lost:
            if not self._left:
                if len(data) - at < _HEAD:
                    self._lost = True  # a full window cut a head in two: rare enough to ignore
                    return
                self._left = 4 + int.from_bytes(data[at : at + 4], "big")
                api_key = int.from_bytes(data[at + 4 : at + 6], "big")
                self._frame = bytearray() if api_key in CONTROL else None
            n = min(self._left, len(data) - at)
            if self._frame is not None:
                self._frame += data[at : at + n]
            self._left -= n
            at += n
            if not self._left and self._frame is not None:
                self._keep(bytes(self._frame[4:]))

    def _keep(self, frame: bytes) -> None:
        head = parse_request_header(frame)
        body = frame[head.body_position :]
        self._tap.control[self._target].append(Sent(head.api_key, head.api_version, body))
        self._tap.told[self._target] += 1
