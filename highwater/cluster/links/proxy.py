"""One TCP proxy in front of one listener of a member; it obeys `Links`.

Theory of operation.  Brokers advertise the proxies' ports, so that peers, the controller and
clients all come through one; each broker also has a ZooKeeper proxy of its own.  The first request
on a connection to a broker names its source: every request's header carries a client id, and
brokers have ids of their own kind (`broker-2-fetcher-0`, `controller-1-...`, `raft-client-3`, or
the bare number that Kafka's controller uses, and a KRaft broker towards it).  All others are
"clients".  So the proxy reads the first frame before it connects onward.

A connection has two pipes.  A pipe examines at most the first 64 KiB of a frame, decides (pass,
hold, drop), waits while its direction is cut, and passes the bytes on by a `Lane`, at once or
slowly.  A held request to ZooKeeper lets pings pass, because otherwise the fault would be the end
of the session.  An answer is matched to its request by the correlation id.

A client sees what it would see without a proxy.  Where the far side refuses the connection, the
near one is reset, as if it had been refused; where the far side closes, the near one is closed in
the same way.  While no rule waits for a message and nothing is cut, the beginning of a request
whose rest does not come soon goes on all the same: a broker closes at once if it is too large.

An `opaque` proxy stands before a listener that speaks TLS: it sees bytes and no frames.  What comes
through it is the clients', and is cut, slowed and reset as any other; no rule can take a message.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from highwater.cluster.links import zkframes
from highwater.cluster.links.frames import CHUNK, LARGEST, LOOK, Ended, Frames
from highwater.cluster.links.link_rules import (
    CLIENTS,
    ZOOKEEPER,
    Action,
    Connection,
    Links,
    Message,
    Rule,
    Side,
    broker,
)
from highwater.cluster.links.observer import Observer
from highwater.cluster.links.rewriting import Replace, must_be_read, rewritten
from highwater.cluster.links.slowness import Lane
from highwater.kafka.wire.codec import BadMessage, UnknownApi, decode_response
from highwater.kafka.wire.header import (
    BadHeader,
    api_name,
    parse_request_header,
    response_body_position,
)
from highwater.kafka.wire.produce_head import read_head

_SIZE = struct.Struct(">i")
_RESET = struct.pack("ii", 1, 0)
_LOST = OSError, trio.BrokenResourceError, trio.ClosedResourceError, Ended
_BROKER_ID = re.compile(
    r"^(?:(?:highwater-)?(?:broker|replica|controller|raft-client)[-_](\d+)(?:\D.*)?|(\d+))$",
    re.IGNORECASE,
)
PRODUCE, FETCH = 0, 1
_numbers = itertools.count(1)
"""Of connections, for an observer."""


def source_of(client_id: str | None) -> str:
    """The member that a client id names.

    >>> source_of("broker-2-fetcher-0"), source_of("controller-1-to-3"), source_of("3"),
    source_of("rdkafka") ('broker-2', 'broker-1', 'broker-3', 'clients')
    """
    match = _BROKER_ID.match(client_id or "")
    return broker(int(match.group(1) or match.group(2))) if match else CLIENTS


@dataclass(slots=True)
class _Session:
    """The state that both pipes of a connection share."""

    source: str
    target: str
    near: trio.SocketStream
    far: trio.SocketStream
    links: Links
    number: int = 0
    asked: deque[tuple[int, int, int]] = field(default_factory=deque)
    """(correlation id, API key, version) of Kafka requests passed on and not answered yet."""
    answered: tuple[int, int] | None = None
    """API key and version of the answer that is passed on now."""
    zk_asked: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    shaken: set[Side] = field(default_factory=set)
    """ZooKeeper: the sides whose handshake is over."""
    waiting: deque[tuple[Rule | None, bytes]] = field(default_factory=deque)
    """ZooKeeper: a held request and the later ones; only pings overtake them."""
    waiting_changed: trio.Event = field(default_factory=trio.Event)
    in_order: bool = False
    """Whether the far side has closed, and everything from there went on."""
    lanes: dict[Side, Lane] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = {side: self._lane(side) for side in Side}

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


class Proxy:
    """Listens for the connections to one listener of `owner` (or, from `owner`, to ZooKeeper)."""

    def __init__(
        self,
        links: Links,
        target_port: int,
        *,
        owner: str,
        zookeeper: bool = False,
        opaque: bool = False,
        host: str = "127.0.0.1",
        replace: Replace | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`replace`: for a broker that advertises no proxy; see `rewriting`.  All that come to it
        are clients.  `observer` sees frames, so it needs a proxy that is not opaque."""
        self.links = links
        self.target_port = target_port
        self.owner = owner
        self.zookeeper = zookeeper
        self.host = host
        self.replace = replace
        self.opaque = opaque
        self.observer = observer

    async def serve(
        self,
        port: int,
        hosts: Sequence[str] = ("127.0.0.1",),
        *,
        task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        listeners = []
        for host in hosts:
            listeners += await trio.open_tcp_listeners(port, host=host, backlog=128)
        await trio.serve_listeners(self._connection, listeners, task_status=task_status)

    async def _connection(self, near: trio.SocketStream) -> None:
        number, in_order = next(_numbers), False
        try:
            with contextlib.suppress(*_LOST):
                in_order = await self._carry(near, number)
        finally:
            if in_order:
                near.socket.close()
            else:
                _reset(near)
            if self.observer is not None:
                self.observer.ended(number)

    async def _carry(self, near: trio.SocketStream, number: int) -> bool:
        """Whether the far side closed in order."""
        frames, far = Frames(near), None
        if self.zookeeper:
            source, target = self.owner, ZOOKEEPER
            first = None
        elif self.opaque:
            source, target, first = CLIENTS, self.owner, None
        else:
            first, far, in_order = await self._first(frames, number)
            if first is None:
                if far is not None:
                    _reset(far)
                return in_order
            source, target = source_of(_client_id(first[0])), self.owner
            source = self.links.names.get(source, source)
            source = source if self.replace is None else CLIENTS
            if self.observer is not None:
                self.observer.begun(number, self.owner, first[0])
        self.links.connections[source, target] += 1
        await self.links.wait_open((source, target), (target, source))
        far = far or await self._far_side(number)
        session = _Session(source, target, near, far, self.links, number)
        scope = trio.CancelScope()

        def reset() -> None:
            _reset(far)
            scope.cancel()

        with self.links.carrying(Connection(source, target, reset)), scope:
            async with far, trio.open_nursery() as nursery:
                for lane in session.lanes.values():
                    nursery.start_soon(self._until_end, nursery, lane.run)
                if self.opaque:
                    for side in Side:
                        nursery.start_soon(self._until_end, nursery, self._bytes, session, side)
                else:
                    asking = (self._requests, session, frames, first)
                    nursery.start_soon(self._until_end, nursery, *asking)
                    nursery.start_soon(self._until_end, nursery, self._answers, session)
                if self.zookeeper:
                    nursery.start_soon(self._until_end, nursery, self._held_requests, session)
        for rule, _ in session.waiting:
            if rule is not None:
                rule.lost += 1
        return session.in_order

    async def _first(
        self, frames: Frames, number: int
    ) -> tuple[tuple[bytes, int] | None, trio.SocketStream | None, bool]:
        """The head of the first frame, which names the source, and the far side if the beginning
        of that frame has gone there already.  There is no head where either side closes; last,
        whether the far side closed in order."""
        far: trio.SocketStream | None = None
        in_order = False

        async def watch(there: trio.SocketStream) -> None:
            nonlocal in_order
            with contextlib.suppress(OSError):
                # it answers only what is whole: something to read is the end
                in_order = not await there.socket.recv(1, socket.MSG_PEEK)
            nursery.cancel_scope.cancel()

        async def early(begun: bytes) -> bool:
            nonlocal far
            if self.links.rules or self.links.cuts:
                return False
            far = await self._far_side(number)
            nursery.start_soon(watch, far)
            await far.send_all(begun)
            return True

        first = None
        async with trio.open_nursery() as nursery:
            with contextlib.suppress(*_LOST):
                first = await frames.head(early)
            nursery.cancel_scope.cancel()
        return first, far, in_order

    async def _far_side(self, number: int) -> trio.SocketStream:
        try:
            return await trio.open_tcp_stream(self.host, self.target_port)
        except OSError as error:
            if self.observer is not None:
                self.observer.unreachable(number, self.owner, str(error))
            raise

    async def _until_end(
        self, nursery: trio.Nursery, pipe: Callable[..., object], *args: object
    ) -> None:
        """Ends the connection when one pipe ends."""
        with contextlib.suppress(*_LOST):
            await pipe(*args)  # type: ignore[misc]
        nursery.cancel_scope.cancel()

    async def _bytes(self, session: _Session, side: Side) -> None:
        """Passes one direction of an opaque connection on."""
        stream, way = session.near, (session.source, session.target)
        if side is Side.RESPONSE:
            stream, way = session.far, way[::-1]
        while piece := await stream.receive_some(CHUNK):
            self.links.passed[way] += 1
            await session.lanes[side].pass_on(bytes(piece))
        await session.lanes[side].drained()
        session.in_order = side is Side.RESPONSE

    async def _requests(
        self, session: _Session, frames: Frames, first: tuple[bytes, int] | None
    ) -> None:
        lane = session.lanes[Side.REQUEST]

        async def early(begun: bytes) -> bool:
            if self.zookeeper or self.links.rules:
                return False
            await lane.pass_on(begun)
            return True

        while got := first or (await frames.begun() and await frames.head(early)):
            first = None
            head, size = got
            message = self._request(session, head, size)
            await self._pass(session, frames, head, message, Side.REQUEST)
        await lane.drained()

    async def _answers(self, session: _Session) -> None:
        frames = Frames(session.far)
        while (got := await self._next_answer(session, frames)) is not None:
            message = self._answer(session, *got)
            head = got[0]
            if self.replace is not None and session.answered is not None:
                head = await self._rewritten(session.answered, head, frames, self.replace)
            await self._pass(session, frames, head, message, Side.RESPONSE)
        await session.lanes[Side.RESPONSE].drained()

    async def _next_answer(self, session: _Session, frames: Frames) -> tuple[bytes, int] | None:
        """The head of an answer; None where the member hung up, of which the observer is told."""
        got = None
        with contextlib.suppress(trio.BrokenResourceError):
            got = await frames.head()
            session.in_order = got is None
        if got is None and self.observer is not None:
            self.observer.hung_up(session.number)
        return got

    @staticmethod
    async def _rewritten(
        asked: tuple[int, int], head: bytes, frames: Frames, replace: Replace
    ) -> bytes:
        """The answer's first bytes, or the whole of it where it may have addresses."""
        if not must_be_read(*asked):
            return head
        frame = (head + await frames.rest_of_frame())[4:]
        try:
            frame = rewritten(*asked, frame, replace)
        except (BadMessage, UnknownApi, BadHeader) as error:
            raise Ended(f"an answer that cannot be read may lead past the proxy: {error}") from None
        return _SIZE.pack(len(frame)) + frame

    async def _pass(
        self,
        session: _Session,
        frames: Frames,
        head: bytes,
        message: Message | None,
        side: Side,
    ) -> None:
        """Passes one frame through rules and cuts."""
        way = (session.source, session.target)
        if side is Side.RESPONSE:
            way = way[::-1]
        gone = frames.ahead if side is Side.REQUEST else 0
        # what has begun to go on cannot be held any more
        rule = self.links.rule_for(message) if message is not None and not gone else None
        if rule is not None and rule.action is Action.DROP:
            if self.zookeeper:
                raise Ended
            while await frames.body():
                pass
            return
        waits = rule is not None or (session.waiting and message and message.api != "ping")
        if waits and self.zookeeper and side is Side.REQUEST:
            session.wait_behind(rule, head + await frames.rest_of_frame())
            return
        try:
            if rule is not None:
                await rule.released.wait()
            self.links.passed[way] += 1
            if len(head) > gone:
                await session.lanes[side].pass_on(head[gone:])
            while piece := await frames.body():
                await session.lanes[side].pass_on(piece)
        except BaseException:
            if rule is not None:
                rule.lost += 1
            raise
        if rule is not None:
            rule.arrived += 1

    async def _held_requests(self, session: _Session) -> None:
        """Sends requests held by a rule on a ZooKeeper connection, in order, on release."""
        while True:
            await session.waiting_changed.wait()
            session.waiting_changed = trio.Event()
            while session.waiting:
                rule, frame = session.waiting[0]
                if rule is not None:
                    await rule.released.wait()
                    if rule.action is Action.DROP:
                        raise Ended  # the held request must never arrive
                await session.lanes[Side.REQUEST].pass_on(frame)
                session.waiting.popleft()
                if rule is not None:
                    rule.arrived += 1

    def _request(self, session: _Session, head: bytes, size: int) -> Message | None:
        body = memoryview(head)[4:]
        if self.zookeeper:
            if Side.REQUEST not in session.shaken:
                session.shaken.add(Side.REQUEST)
                return None
            xid, name, paths = zkframes.parse_request(body)
            if xid > 0:
                session.zk_asked[xid] = (name, paths)
            return Message(session.source, session.target, Side.REQUEST, name, paths)
        if size > LARGEST:
            return None
        try:
            header = parse_request_header(body)
        except BadHeader:
            return None
        rest = body[header.body_position :]
        produce = read_head(header.api_version, rest) if header.api_key == PRODUCE else None
        if produce is None or produce.acks != 0:
            session.asked.append((header.correlation_id, header.api_key, header.api_version))
        if self.observer is not None:
            self.observer.asked(session.number, header, rest, whole=size <= LOOK)
        name = api_name(header.api_key)
        topic = None if produce is None else produce.topic
        return Message(
            session.source, session.target, Side.REQUEST, name, (), header.client_id, topic
        )

    def _answer(self, session: _Session, head: bytes, size: int) -> Message | None:
        body = memoryview(head)[4:]
        if len(body) < 4:
            return None
        if self.zookeeper:
            if Side.RESPONSE not in session.shaken:
                session.shaken.add(Side.RESPONSE)
                return None
            name, paths = session.zk_asked.pop(zkframes.response_xid(body), ("", ()))
            return Message(session.target, session.source, Side.RESPONSE, name, paths)
        (correlation_id,) = _SIZE.unpack_from(body)
        session.answered = None
        while session.asked:
            asked, api_key, version = session.asked.popleft()
            if asked == correlation_id:
                session.answered = (api_key, version)
                name = api_name(api_key)
                self._show_answer(session, body, whole=size <= LOOK)
                if api_key in (PRODUCE, FETCH) and size <= LOOK and session.source == CLIENTS:
                    self._count_errors(name, api_key, version, body)
                return Message(session.target, session.source, Side.RESPONSE, name)
        return None

    def _show_answer(self, session: _Session, body: memoryview, *, whole: bool) -> None:
        if self.observer is None or session.answered is None:
            return
        with contextlib.suppress(BadHeader):
            at = response_body_position(*session.answered, body)
            self.observer.answered(session.number, *session.answered, body[at:], whole=whole)

    def _count_errors(self, name: str, api_key: int, version: int, body: memoryview) -> None:
        """Counts errors in answers to clients, which hide NOT_LEADER behind their retries."""
        try:
            position = response_body_position(api_key, version, body)
            answer = decode_response(api_key, version, body[position:])
        except (BadMessage, UnknownApi, BadHeader):
            return
        for topic in answer.responses:
            answers = topic.partition_responses if api_key == PRODUCE else topic.partitions
            for partition in answers:
                if partition.error_code:
                    self.links.answers[name, str(partition.error_code)] += 1


def _client_id(head: bytes) -> str | None:
    try:
        return parse_request_header(memoryview(head)[4:]).client_id
    except BadHeader:
        return None


def _reset(stream: trio.SocketStream) -> None:
    """Closes with a reset, so that the peer knows at once and nothing lingers."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()
