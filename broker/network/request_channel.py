"""The request channel: the one bounded queue between a plane's processors and its handlers.

It never drops a request and never grows.  When it is full (queued.max.requests, or
queued.max.request.bytes), processors leave the bytes in the sockets, and TCP slows the clients
down.  A connection with bytes to read waits in `stalled`, in order, and is read again when there is
room.

A request's bytes count from the moment that its size is known until the API no longer needs their
buffer: for a Produce until it is appended, for any other until it is decoded.  As in Kafka's memory
pool, a request is let in while anything is left, so one request may exceed the bound.  A request
that was let in is read to its end even when the pool is empty, because its bytes come back only
then.  Further bytes of a client wait in its socket, except for the rest of one read (64 KiB).

Kafka's processor blocks with one request in its hand, and sends no answers meanwhile.  This one
goes on sending: a full channel never delays an answer that is ready.

Handlers sleep only when the queue is empty, and one runs at a time: as all share one thread, a
second is of use only while the first waits for something outside (ZooKeeper, a worker thread).
If a handler is idle when a processor has ended a round of reading, its work is done at once, on
the processor's task (`work`): the two queues stay, and the cost of a task switch is saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from highwater.base.waker import Waker

if TYPE_CHECKING:
    from highwater.broker.network.connection import BrokerConnection
    from highwater.broker.network.request import Request


UNBOUNDED = 1 << 62


class RequestChannel:
    def __init__(self, capacity: int, capacity_bytes: int = -1) -> None:
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes if capacity_bytes > 0 else UNBOUNDED
        self.bytes_in_flight = 0
        """Bytes of queued requests, and of handled ones that still hold their buffer."""
        self._queue: deque[Request] = deque()
        self._stalled: deque[BrokerConnection] = deque()
        self._halfway: deque[BrokerConnection] = deque()
        """Stalled connections that have their memory, and need only a place in the queue."""
        self._idle: list[Waker] = []
        self._running = 0
        self._held = False
        self.work: Callable[[], None] = lambda: None
        """Handles requests for a moment; set by the pool."""

    def resize(self, capacity: int, capacity_bytes: int) -> None:
        """Changes the bounds while running; queued requests stay."""
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes if capacity_bytes > 0 else UNBOUNDED
        self._resume()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= self.capacity or self.bytes_in_flight >= self.capacity_bytes

    def closed_to(self, connection: BrokerConnection) -> bool:
        """Whether a full channel refuses this connection: one within a request may go on."""
        return not connection.reserved or len(self._queue) >= self.capacity

    def reserve(self, size: int) -> None:
        """Counts memory for a request that arrives in parts; a negative size gives it back."""
        self.bytes_in_flight += size
        if size < 0 and self._stalled:
            self._resume()

    def put(self, request: Request) -> None:
        """Queues a request; the caller has checked that the channel is not `full`."""
        self._queue.append(request)
        self.bytes_in_flight += request.size
        if not self._held and not self._running and self._idle:
            self.wake_one()

    def hold(self) -> None:
        """Begins a processor's round, which `go` ends: no handler need be woken in between."""
        self._held = True

    def go(self) -> None:
        """Ends the round: if a handler is idle, its work is done now."""
        if self._queue and not self._running and self._idle:
            self.work()
        self._held = False
        if self._queue and not self._running and self._idle:
            self.wake_one()

    def stall(self, connection: BrokerConnection) -> None:
        """Makes the connection be read again, once, when there is room."""
        if not connection.stalled:
            connection.stalled = True
            (self._halfway if connection.reserved else self._stalled).append(connection)

    @property
    def stalled(self) -> int:
        return len(self._stalled) + len(self._halfway)

    # --- the handlers' side

    def take(self) -> Request | None:
        """The oldest request, or None (then `sleep`)."""
        if not self._queue:
            return None
        request = self._queue.popleft()
        if self._stalled or self._halfway:
            self._resume()
        return request

    def release(self, request: Request) -> None:
        """Gives the request's buffer back, which is no longer needed."""
        if request.body is not None:
            request.body = None
            self.bytes_in_flight -= request.size
            if self._stalled:
                self._resume()

    def wake_one(self) -> None:
        """Wakes one of the idle handlers; there must be one."""
        self._running += 1
        self._idle.pop().wake()

    @property
    def handler_free(self) -> bool:
        return bool(self._idle)

    async def sleep(self, waker: Waker) -> None:
        """Waits for a request; afterwards the handler counts as running again."""
        self._running -= 1
        self._idle.append(waker)
        try:
            await waker.sleep()
        except BaseException:
            if waker in self._idle:
                self._idle.remove(waker)
                self._running += 1  # as if woken: a handler that ends counts itself out
            raise

    def started(self) -> None:
        """Called when a handler begins to run."""
        self._running += 1

    def blocked(self) -> None:
        """Called when a handler waits for something outside, or ends: another may take over."""
        self._running -= 1
        if self._queue and not self._held and not self._running and self._idle:
            self.wake_one()

    def wake_all(self) -> None:
        """Wakes handlers above a lowered num.io.threads, so that they end."""
        while self._idle:
            self.wake_one()

    def _resume(self) -> None:
        while self._halfway and len(self._queue) < self.capacity:
            self._read_on(self._halfway.popleft())
        while self._stalled and not self.full:
            self._read_on(self._stalled.popleft())

    @staticmethod
    def _read_on(connection: BrokerConnection) -> None:
        connection.stalled = False
        if not connection.closed:
            connection.processor.resume(connection)
