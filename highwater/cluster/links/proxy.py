"""One TCP proxy in front of one listener of a member; it obeys `Links`.

Theory of operation.  Brokers advertise the proxies' ports, so that peers, the controller and
clients all come through one; each broker also has a ZooKeeper proxy of its own.  The first request
on a connection to a broker names its source: every request's header carries a client id, and
brokers have ids of their own kind (`broker-2-fetcher-0`, `controller-1-...`, `raft-client-3`, or
the bare number that Kafka's controller uses, as does a KRaft broker towards the controller).  All
others are "clients".  So the proxy reads the first frame before it connects onward.

A connection has two pipes.  A pipe examines at most the first 64 KiB of a frame, decides (pass,
hold, drop), waits while its direction is cut, and passes the bytes on by a `Lane`, at once or
slowly.  A held request to ZooKeeper lets pings pass, because otherwise the fault would be the end
of the session.  An answer is matched to its request by the correlation id.

Where a rule answers a request, the member is not asked.  The answer takes the request's place in
the order of the connection: it goes to the client once all earlier requests are answered.

A client sees what it would see without a proxy.  Where the far side refuses the connection, the
near one is reset, as if it had been refused; where the far side closes, the near one is closed in
the same way.  If the rest of a request does not come soon, its beginning goes on without it while
no rule waits for a message and nothing is cut: a broker closes at once on a request that is too
large.

An `opaque` proxy stands before a listener that speaks TLS: it sees bytes and no frames.  What comes
through it is the clients', and is cut, slowed and reset as any other; no rule can take a message.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Callable, Sequence

import trio

from highwater.cluster.links import zkframes
from highwater.cluster.links.acceptor import Acceptor
from highwater.cluster.links.answering import (
    answer_instead,
    answer_with_error,
    read_whole,
    rewritten_frame,
)
from highwater.cluster.links.answers_seen import PRODUCE, take_note
from highwater.cluster.links.frames import CHUNK, LARGEST, LOOK, Ended, Frames, reset_stream
from highwater.cluster.links.link_rules import (
    CLIENTS,
    ZOOKEEPER,
    Action,
    Connection,
    Links,
    Message,
    Side,
)
from highwater.cluster.links.observer import Observer
from highwater.cluster.links.rewriting import Replace
from highwater.cluster.links.session import Asked, Handed, Session
from highwater.cluster.links.whose import client_id_in, source_of
from highwater.kafka.wire.header import (
    BadHeader,
    api_name,
    parse_request_header,
    response_body_position,
)
from highwater.kafka.wire.produce_head import read_head

_SIZE = struct.Struct(">i")
_LOST = OSError, trio.BrokenResourceError, trio.ClosedResourceError, Ended
_numbers = itertools.count(1)
"""The numbers by which an observer knows connections."""


class Proxy:
    """Listens for the connections to one listener of `owner` (or, from `owner`, to ZooKeeper)."""

    acceptor: Acceptor
    """Set by `serve`."""
    _nursery: trio.Nursery

    def __init__(
        self,
        links: Links,
        target_port: int,
        *,
        owner: str,
        zookeeper: bool = False,
        opaque: bool = False,
        host: str = "127.0.0.1",
        others: Sequence[tuple[str, int]] = (),
        replace: Replace | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`others`: the addresses to try if the first cannot be reached.  `replace`: for a broker
        that advertises no proxy (see `rewriting`); then all connections are those of clients.
        `observer` sees frames, so it needs a proxy that is not opaque."""
        self.links = links
        self.target_port = target_port
        self.owner = owner
        self.zookeeper = zookeeper
        self.host = host
        self.others = others
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
        self.acceptor = Acceptor(listeners)
        async with trio.open_nursery() as self._nursery:
            task_status.started(listeners)
            await self.acceptor.run(self._connection, self._nursery)

    async def take_over(self, handed: Handed) -> None:
        """Carries a connection that exists; returns once faults reach it."""
        await self._nursery.start(self._connection, handed.near, handed)

    async def _connection(
        self,
        near: trio.SocketStream,
        handed: Handed | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        number, in_order = next(_numbers), False
        try:
            with contextlib.suppress(*_LOST):
                in_order = await self._carry(near, number, handed, task_status.started)
        finally:
            if in_order:
                near.socket.close()
            else:
                reset_stream(near)
            if self.observer is not None:
                self.observer.ended(number)

    async def _carry(
        self,
        near: trio.SocketStream,
        number: int,
        handed: Handed | None,
        begun: Callable[[], None],
    ) -> bool:
        """Carries a connection to its end; returns whether the far side closed in order.  Calls
        `begun` once faults reach the connection."""
        frames, first, far = Frames(near), None, None
        if handed is not None:
            frames.buffer, far = bytearray(handed.unread), handed.far
        if self.zookeeper:
            source, target = self.owner, ZOOKEEPER
        elif self.opaque:
            source, target = CLIENTS, self.owner
        elif handed is not None and handed.client_id is not None:
            source, target = source_of(handed.client_id), self.owner
        else:
            begun()
            first, far, in_order = await self._first(frames, number, far)
            if first is None:
                if far is not None:
                    reset_stream(far)
                return in_order
            source, target = source_of(client_id_in(first[0])), self.owner
            source = CLIENTS if self.replace else self.links.names.get(source, source)
            if self.observer is not None:
                self.observer.begun(number, self.owner, first[0])
        self.links.connections[source, target] += 1
        await self.links.wait_open((source, target), (target, source))
        far = far or await self._far_side(number)
        session = Session(source, target, near, far, self.links, number)
        if handed is not None:
            session.inherit(handed)
        scope = trio.CancelScope()

        def reset() -> None:
            reset_stream(far)
            scope.cancel()

        with self.links.carrying(Connection(source, target, reset)), scope:
            if handed is not None and first is None:
                begun()
            async with far, trio.open_nursery() as nursery:
                for lane in session.lanes.values():
                    nursery.start_soon(self._until_end, nursery, lane.run)
                if self.opaque:
                    for side in Side:
                        nursery.start_soon(self._until_end, nursery, self._bytes, session, side)
                else:
                    asking = (self._requests, session, nursery, frames, first)
                    nursery.start_soon(self._until_end, nursery, *asking)
                    nursery.start_soon(self._until_end, nursery, self._answers, session)
                if self.zookeeper:
                    nursery.start_soon(self._until_end, nursery, self._held_requests, session)
        for rule, _ in session.waiting:
            if rule is not None:
                rule.lost += 1
        return session.in_order

    async def _first(
        self, frames: Frames, number: int, far: trio.SocketStream | None
    ) -> tuple[tuple[bytes, int] | None, trio.SocketStream | None, bool]:
        """Returns the head of the first frame, which names the source; the far side, if the proxy
        had to connect to it already; and whether the far side closed in order.  The head is None if
        either side closes first."""
        in_order = False

        async def watch(there: trio.SocketStream) -> None:
            nonlocal in_order
            with contextlib.suppress(OSError):
                # no request is whole yet, so it has nothing to answer: it can only have closed
                in_order = not await there.socket.recv(1, socket.MSG_PEEK)
            nursery.cancel_scope.cancel()

        async def early(begun: bytes) -> bool:
            nonlocal far
            if self.links.rules or self.links.cuts:
                return False
            if far is None:
                far = await self._far_side(number)
                nursery.start_soon(watch, far)
            await far.send_all(begun)
            return True

        first = None
        async with trio.open_nursery() as nursery:
            if far is not None:
                nursery.start_soon(watch, far)
            with contextlib.suppress(*_LOST):
                first = await frames.head(early)
            nursery.cancel_scope.cancel()
        return first, far, in_order

    async def _far_side(self, number: int) -> trio.SocketStream:
        *earlier, last = (self.host, self.target_port), *self.others
        for place in earlier:
            with contextlib.suppress(OSError):
                return await trio.open_tcp_stream(*place)
        try:
            return await trio.open_tcp_stream(*last)
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

    async def _bytes(self, session: Session, side: Side) -> None:
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
        self,
        session: Session,
        nursery: trio.Nursery,
        frames: Frames,
        first: tuple[bytes, int] | None,
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
            message, asked = self._request(session, head, size)
            if message is not None and asked is not None and not frames.ahead:
                head = await self._answered_here(session, frames, (head, size), message, asked)
                if asked.answer is not None:
                    nursery.start_soon(self._send_own_answers, session, nursery)
                    continue
            on = await self._pass(session, frames, head, message, Side.REQUEST)
            if not on and asked is not None and asked in session.asked:
                session.asked.remove(asked)  # else the proxy's own answers would wait behind it
        await lane.drained()

    async def _answered_here(
        self,
        session: Session,
        frames: Frames,
        got: tuple[bytes, int],
        message: Message,
        asked: Asked,
    ) -> bytes:
        """Sets `asked.answer` if a rule answers this request; returns what was read of it."""
        head, size = got
        rules = self.links.answering(message)
        if not rules:
            return head
        head, whole = await read_whole(rules, frames, head, size)
        answer = answer_instead(self.links, message, asked, head[4:]) if whole else None
        if answer is not None and asked.silent:
            session.in_order = True  # with acks=0 a broker, too, can only close the connection
            raise Ended
        asked.answer = answer
        return head

    async def _send_own_answers(self, session: Session, nursery: trio.Nursery) -> None:
        try:
            async with session.answering:
                await self._send_own(session, session.own_answers())
        except _LOST:
            nursery.cancel_scope.cancel()

    async def _send_own(self, session: Session, answers: Sequence[Asked]) -> None:
        for asked in answers:
            assert asked.answer is not None
            self._show_answer(session, asked, memoryview(asked.answer), whole=True)
            frame = _SIZE.pack(len(asked.answer)) + asked.answer
            await session.lanes[Side.RESPONSE].pass_on(frame)

    async def _answers(self, session: Session) -> None:
        frames = Frames(session.far)
        if session.unsent:
            frames.rest = session.unsent
            while piece := await frames.body():
                await session.lanes[Side.RESPONSE].pass_on(piece)
            async with session.answering:
                session.asked.popleft()
                await self._send_own(session, session.own_answers())
        while (got := await self._next_answer(session, frames)) is not None:
            async with session.answering:
                message, asked, own = self._answer(session, *got)
                await self._send_own(session, own)
                head = got[0]
                if message is not None and asked is not None:
                    head = await self._answer_for_client(session, frames, got, message, asked)
                await self._pass(session, frames, head, message, Side.RESPONSE)
                await self._send_own(session, session.own_answers())
        await session.lanes[Side.RESPONSE].drained()

    async def _answer_for_client(
        self,
        session: Session,
        frames: Frames,
        got: tuple[bytes, int],
        message: Message,
        asked: Asked,
    ) -> bytes:
        """A member's answer as rules and `replace` change it: the whole, or only its first bytes if
        nothing changes."""
        (head, size), whole = got, got[1] <= LOOK
        if rules := self.links.answering(message):
            head, whole = await read_whole(rules, frames, head, size)
            if whole:
                frame = answer_with_error(self.links, message, asked, head[4:])
                head = _SIZE.pack(len(frame)) + frame
        self._show_answer(session, asked, memoryview(head)[4:], whole=whole)
        if self.replace is None:
            return head
        return await rewritten_frame((asked.api_key, asked.version), head, frames, self.replace)

    async def _next_answer(self, session: Session, frames: Frames) -> tuple[bytes, int] | None:
        """The head of the next answer; None, and a call of the observer, if the member hung up."""
        got = None
        with contextlib.suppress(trio.BrokenResourceError):
            got = await frames.head()
            session.in_order = got is None
        if got is None and self.observer is not None:
            self.observer.hung_up(session.number)
        return got

    async def _pass(
        self,
        session: Session,
        frames: Frames,
        head: bytes,
        message: Message | None,
        side: Side,
    ) -> bool:
        """Passes one frame through rules and cuts; returns False if a rule dropped it."""
        way = (session.source, session.target)
        if side is Side.RESPONSE:
            way = way[::-1]
        gone = frames.ahead if side is Side.REQUEST else 0
        # a frame of which a part has gone on already can no longer be held or dropped
        rule = self.links.rule_for(message) if message is not None and not gone else None
        if rule is not None and rule.action is Action.DROP:
            if self.zookeeper:
                raise Ended
            while await frames.body():
                pass
            return False
        waits = rule is not None or (session.waiting and message and message.api != "ping")
        if waits and self.zookeeper and side is Side.REQUEST:
            session.wait_behind(rule, head + await frames.rest_of_frame())
            return True
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
        return True

    async def _held_requests(self, session: Session) -> None:
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

    def _request(
        self, session: Session, head: bytes, size: int
    ) -> tuple[Message | None, Asked | None]:
        body = memoryview(head)[4:]
        if self.zookeeper:
            if Side.REQUEST not in session.shaken:
                session.shaken.add(Side.REQUEST)
                return None, None
            xid, name, paths = zkframes.parse_request(body)
            if xid > 0:
                session.zk_asked[xid] = (name, paths)
            return Message(session.source, session.target, Side.REQUEST, name, paths), None
        if size > LARGEST:
            return None, None
        try:
            header = parse_request_header(body)
        except BadHeader:
            return None, None
        key, version, number, client, at = header
        produce = read_head(version, body[at:]) if key == PRODUCE else None
        asked = Asked(number, key, version, client, produce is not None and produce.acks == 0)
        if not asked.silent:
            session.asked.append(asked)
        if self.observer is not None:
            self.observer.asked(session.number, header, body[at:], whole=size <= LOOK)
        topic = None if produce is None else produce.topic
        way = (session.source, session.target, Side.REQUEST)
        return Message(*way, api_name(key), (), client, topic), asked

    def _answer(
        self, session: Session, head: bytes, size: int
    ) -> tuple[Message | None, Asked | None, Sequence[Asked]]:
        """Returns the answer as a message, its request, and the earlier requests that the proxy
        itself answers."""
        body, way = memoryview(head)[4:], (session.target, session.source, Side.RESPONSE)
        if len(body) < 4:
            return None, None, ()
        if self.zookeeper:
            if Side.RESPONSE not in session.shaken:
                session.shaken.add(Side.RESPONSE)
                return None, None, ()
            name, paths = session.zk_asked.pop(zkframes.response_xid(body), ("", ()))
            return Message(*way, name, paths), None, ()
        own = session.own_answers(before=_SIZE.unpack_from(body)[0])
        if not session.asked:
            return None, None, own
        asked = session.asked.popleft()
        if size <= LOOK and session.source == CLIENTS:
            take_note(self.links, asked.api_key, asked.version, body)
        return Message(*way, api_name(asked.api_key), (), asked.client_id), asked, own

    def _show_answer(
        self, session: Session, asked: Asked, body: memoryview, *, whole: bool
    ) -> None:
        if self.observer is None:
            return
        key, version = asked.api_key, asked.version
        with contextlib.suppress(BadHeader):
            at = response_body_position(key, version, body)
            self.observer.answered(session.number, key, version, body[at:], whole=whole)
