"""One connection to a broker: requests out, answers back in order, any number in flight.

It has no task of its own.  A caller that waits for an answer while no other caller reads becomes
the reader: it takes frames from the socket, hands each to its call, and passes the reading on when
its own answer is there.  With one call in flight, the usual case of a replica fetcher, nothing is
handed over at all.  `wait_closed` reads too, so that an idle connection's end is seen at once.

A broker answers in the order of the requests, so an answer with another correlation id than the
oldest one means that the stream is broken.

Every failure is an OSError: `ConnectionLost` where the connection ended (of a request already sent,
the outcome is unknown), `RequestTimedOut` where no answer came in time.  The connection survives a
time-out; the late answer is thrown away when it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from highwater.base.buffers import BufferPool
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.header import request_header, response_body_position

if TYPE_CHECKING:
    from highwater.world.api import Buffer, Connection, Network

_SIZE = Struct(">i")
_BUFFER_BYTES = 16384
_MAX_FRAME_BYTES = 1 << 30
_JOIN_BELOW = 4096
_KEPT_BYTES = 4 << 20


class ConnectionLost(ConnectionError):
    """The connection ended; of requests in flight the outcome is unknown."""


class RequestTimedOut(TimeoutError):
    """No answer came in time; the outcome is unknown."""


class _Call:
    __slots__ = ("abandoned", "correlation_id", "event", "frame")

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.frame: memoryview | None = None
        self.event: trio.Event | None = None
        self.abandoned = False


class Pending:
    """A request that was sent, and whose answer is still to come."""

    def __init__(self, connection: ClientConnection, api_key: int, version: int) -> None:
        self._connection = connection
        self._api_key = api_key
        self._version = version
        self._call: _Call | None = None

    async def wait(self) -> memoryview:
        """The answer's body.  Cancelled, it may be called again; raises ConnectionLost."""
        call = self._call
        assert call is not None
        frame = await self._connection._answer(call)
        return frame[response_body_position(self._api_key, self._version, frame) :]

    def abandon(self) -> None:
        """The answer is thrown away when it comes."""
        if self._call is not None:
            self._call.abandoned = True


class ClientConnection:
    """One connection; see the module's docstring for reading and exceptions."""

    def __init__(self, connection: Connection, client_id: str | None) -> None:
        self.client_id = client_id
        self.peer = connection.peer
        self.local = connection.local
        self.closed = False
        self._why = "closed by this side"
        self._connection = connection
        self._next_id = 0
        self._in_flight: deque[_Call] = deque()
        self._reading = False
        self._idle_reader: trio.Event | None = None
        self._ended = trio.Event()
        self._sending = False
        self._send_queue: deque[trio.Event] = deque()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._buffers = BufferPool(keep=2, largest=_KEPT_BYTES)
        self._large: memoryview | None = None
        self._large_rest = self._view[:0]

    @classmethod
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        client_id: str | None,
        *,
        timeout_s: float = 10.0,
    ) -> ClientConnection:
        """Connects; raises OSError (RequestTimedOut after `timeout_s`)."""
        with trio.move_on_after(timeout_s):
            return cls(await network.connect(host, port), client_id)
        raise RequestTimedOut(f"no connection to {host}:{port} within {timeout_s:g} s")

    @property
    def in_flight(self) -> int:
        """Requests sent and not answered, abandoned ones among them."""
        return len(self._in_flight)

    async def call(self, request: Any, version: int, timeout_s: float) -> Any:
        """Sends a message, and gives the decoded answer (None for an acks=0 Produce)."""
        api_key = request.API_KEY
        body = encode_request(request, version)
        if not request.expect_response():
            await self.send_raw(api_key, version, [body], timeout_s)
            return None
        return decode_response(
            api_key, version, await self.call_raw(api_key, version, [body], timeout_s)
        )

    async def call_raw(
        self,
        api_key: int,
        version: int,
        parts: Sequence[Buffer],
        timeout_s: float,
        scope: trio.CancelScope | None = None,
    ) -> memoryview:
        """Sends a body in parts, and gives the answer's body; the view is the caller's to keep.

        Who cancels the `scope` meets RequestTimedOut before its deadline: one scope costs less than
        two around each other, and followers call this for each batch.
        """
        call = None
        if scope is None:
            scope = trio.CancelScope()
        scope.deadline = trio.current_time() + timeout_s
        with scope:
            try:
                call = await self._send(api_key, version, parts, expect=True)
                assert call is not None
                frame = await self._answer(call)
                return frame[response_body_position(api_key, version, frame) :]
            except BaseException:
                if call is not None:
                    call.abandoned = True
                raise
        raise RequestTimedOut(f"no answer from {self._name()} within {timeout_s:g} s")

    async def begin(
        self, api_key: int, version: int, parts: Sequence[Buffer], timeout_s: float
    ) -> Pending:
        """Sends a request; the caller waits for its answer separately.

        Requests leave in the order of these calls, which is how a producer keeps several batches of
        a partition in flight.
        """
        pending = Pending(self, api_key, version)
        with trio.move_on_after(timeout_s):
            pending._call = await self._send(api_key, version, parts, expect=True)
            return pending
        raise RequestTimedOut(f"{self._name()} took no request within {timeout_s:g} s")

    async def send_raw(
        self, api_key: int, version: int, parts: Sequence[Buffer], timeout_s: float
    ) -> None:
        """Sends a request that has no answer (Produce with acks=0)."""
        with trio.move_on_after(timeout_s):
            await self._send(api_key, version, parts, expect=False)
            return
        raise RequestTimedOut(f"{self._name()} took no request within {timeout_s:g} s")

    async def wait_closed(self) -> str:
        """Waits until the connection has ended, and says why."""
        while not self.closed:
            if not self._reading:
                await self._read_until(None)
            elif self._idle_reader is None:
                self._idle_reader = event = trio.Event()
                try:
                    await event.wait()
                finally:
                    self._idle_reader = None
            else:
                await self._ended.wait()
        return self._why

    def close(self) -> None:
        """Closes, idempotently; calls in flight raise ConnectionLost."""
        self._close("closed by this side")

    def _name(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    def _close(self, why: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._why = why
        self._connection.close()
        self._ended.set()
        for call in self._in_flight:
            if call.event is not None:
                call.event.set()
        for event in self._send_queue:
            event.set()
        if self._idle_reader is not None:
            self._idle_reader.set()

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"connection to {self._name()}: {self._why}")

    # --- sending

    async def _send(
        self, api_key: int, version: int, parts: Sequence[Buffer], *, expect: bool
    ) -> _Call | None:
        if self._sending:
            event = trio.Event()
            self._send_queue.append(event)
            try:
                await event.wait()
            except BaseException:
                # cancelled: out of the queue, or, when it was our turn already, on to the next
                if event in self._send_queue:
                    self._send_queue.remove(event)
                else:
                    self._next_sender()
                raise
        if self.closed:
            raise self._lost()
        self._sending = True
        try:
            correlation_id = self._next_id
            self._next_id = (correlation_id + 1) & 0x7FFFFFFF
            views = _frame(request_header(api_key, version, correlation_id, self.client_id), parts)
            call = None
            if expect:
                call = _Call(correlation_id)
                self._in_flight.append(call)
            await self._send_all(views)
            return call
        finally:
            self._next_sender()

    def _next_sender(self) -> None:
        """Gives the turn directly to the longest waiter, so that no other sender cuts in."""
        if self._send_queue:
            self._send_queue.popleft().set()
        else:
            self._sending = False

    async def _send_all(self, views: list[Buffer]) -> None:
        try:
            while True:
                taken = self._connection.send(views)
                if taken is None:
                    await self._connection.wait_writable()
                    continue
                while views and taken >= len(views[0]):
                    taken -= len(views.pop(0))
                if not views:
                    return
                if taken:
                    views[0] = memoryview(views[0])[taken:]
        except (OSError, trio.ClosedResourceError) as exc:
            self._close(str(exc) or type(exc).__name__)
            raise self._lost() from exc
        except BaseException:
            self._close("a request was cancelled when half sent")
            raise

    # --- receiving

    async def _answer(self, call: _Call) -> memoryview:
        while call.frame is None:
            if self.closed:
                raise self._lost()
            if self._reading:
                call.event = trio.Event()
                try:
                    await call.event.wait()
                except BaseException:
                    call.event = None
                    self._hand_over()  # it may have been our turn to read
                    raise
                call.event = None
            else:
                await self._read_until(call)
        return call.frame

    async def _read_until(self, call: _Call | None) -> None:
        """Reads until the call is answered or the connection has ended."""
        self._reading = True
        try:
            while not self.closed and (call is None or call.frame is None):
                await self._connection.wait_readable()
                while self._read():
                    pass
        except (OSError, trio.ClosedResourceError) as exc:
            self._close(str(exc) or type(exc).__name__)
        finally:
            self._reading = False
            self._hand_over()

    def _hand_over(self) -> None:
        """Wakes the next caller that can read, where no one reads."""
        if self._reading:
            return
        for call in self._in_flight:
            if not call.abandoned and call.frame is None and call.event is not None:
                call.event.set()
                return
        if self._idle_reader is not None:
            self._idle_reader.set()

    def _read(self) -> bool:
        """Takes what the socket holds; True where trying again before waiting is worth while.

        A frame that the small buffer does not hold is read straight into a buffer of its own.  Its
        state is kept here, so that a reader can be cancelled at any point.
        """
        if self._large is None:
            n = self._connection.recv_into(self._view[self._end :])
        else:
            n = self._connection.recv_into(self._large_rest)
        if not n:
            if n == 0:
                self._close("closed by the peer")
            return False
        if self._large is None:
            self._end += n
            return self._take_frames()
        self._large_rest = self._large_rest[n:]
        if self._large_rest:
            return True
        frame, self._large = self._large, None
        self._large_rest = self._view[:0]
        self._deliver(frame)
        return False

    def _take_frames(self) -> bool:
        """Hands out the whole frames in the small buffer; True where a large one has begun."""
        start, end = self._start, self._end
        while end - start >= 4 and not self.closed:
            (size,) = _SIZE.unpack_from(self._buffer, start)
            if not 4 <= size <= _MAX_FRAME_BYTES:
                self._close(f"a frame of {size} bytes")
                return False
            body = start + 4
            if end - body >= size:
                start = body + size
                self._deliver(memoryview(bytearray(self._view[body:start])))
            elif size + 4 <= _BUFFER_BYTES:
                break
            else:
                self._large = memoryview(self._buffers.take(size))[:size]
                self._large[: end - body] = self._view[body:end]
                self._large_rest = self._large[end - body :]
                start = end
        if start == end:
            self._start = self._end = 0
        elif start:
            self._buffer[: end - start] = self._view[start:end].tobytes()
            self._start, self._end = 0, end - start
        return self._large is not None

    def _deliver(self, frame: memoryview) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            self._close(f"an answer with correlation id {correlation_id} that was not next")
            return
        call = self._in_flight.popleft()
        if not call.abandoned:
            call.frame = frame
            if call.event is not None:
                call.event.set()


def _frame(header: bytes, parts: Sequence[Buffer]) -> list[Buffer]:
    """Size and header before the parts; joins small parts, because one buffer is cheaper to
    send."""
    size = len(header)
    for part in parts:
        size += len(part)
    head = _SIZE.pack(size) + header
    if size < _JOIN_BELOW:
        return [b"".join((head, *parts))]
    return [head, *(part for part in parts if len(part))]
