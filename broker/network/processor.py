"""A processor: the sockets of its connections, and its own response queue.

The num.network.threads processors are tasks of one thread here, not threads: more of them do not
read faster.  Each has a set of connections and a response queue of its own, and the sets take
turns.  After a round of its set, and after each millisecond of a long round, a processor makes a
checkpoint.

A processor has two tasks.  The *reader* waits at the poller, reads the connections that have news,
and puts whole requests into the request channel.  The *writer* empties the response queue when it
has become long: usually the queue is empty, and an answer leaves as soon as it is put there,
without a task switch.  If a socket takes no more, the rest waits until the poller reports room: a
slow client delays no other.  Nor does a client that reads records no longer in memory: a separate
task waits for the disk.  Answers leave in the order of the requests: an answer that is ready before
its predecessors waits for them (`connection` says when requests overlap at all).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from highwater.base.buffers import BufferPool
from highwater.base.waker import Waker
from highwater.broker.network.connection import (
    SCRATCH_BYTES,
    BrokerConnection,
    FrameError,
    PeerClosed,
    SegmentChanged,
    Sent,
)
from highwater.broker.network.poller import READ, WRITE, Poller, open_poller
from highwater.broker.network.request import Request
from highwater.kafka.wire.header import BadHeader, parse_request_header

if TYPE_CHECKING:
    from highwater.broker.network.request_channel import RequestChannel
    from highwater.world.api import Loan, Network

log = logging.getLogger(__name__)

_BROKEN = ~(READ | WRITE)
_SLICE_NS = 1_000_000


class Gate:
    """Collects answers while it is shut, so that those of a connection leave by one system call."""

    __slots__ = ("behind", "shut")

    def __init__(self) -> None:
        self.shut = False
        self.behind: dict[Processor, None] = {}
        """The processors that have got answers while the gate was shut."""

    def open(self) -> None:
        self.shut = False
        behind, self.behind = self.behind, {}
        for processor in behind:
            processor.drain()


class Processor:
    """One of a plane's processors."""

    def __init__(
        self,
        index: int,
        channel: RequestChannel,
        perf_ns: Callable[[], int],
        on_sent: Callable[[Request, int], None],
        on_closed: Callable[[BrokerConnection], None],
        call_later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        self.index = index
        self.connections: dict[BrokerConnection, None] = {}
        self.responses: deque[Request] = deque()
        self.busy_ns = 0
        """Time spent reading and, in the writer, sending."""
        self.created: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        """By listener, the number of connections that were opened, and that have ended."""
        self.reading = True
        self.gate = Gate()
        """The server's gate, which all processors share."""
        self._channel = channel
        self._perf_ns = perf_ns
        self._on_sent = on_sent
        self._on_closed = on_closed
        self._call_later = call_later
        self._poller: Poller | None = None
        self._running = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self.buffers = BufferPool()
        self._ready: dict[BrokerConnection, None] = {}
        """The connections with answers that may leave now, in order."""
        self._again: deque[BrokerConnection] = deque()
        self._unsent: deque[BrokerConnection] = deque()
        self._writer = Waker()
        self._round = 0
        self._draining = False

    def add(self, connection: BrokerConnection) -> None:
        """Takes a connection from an acceptor."""
        assert self._poller is not None
        connection.last_active = self._perf_ns()
        self.connections[connection] = None
        _count(self.created, connection.listener.name)
        self._poller.add(connection.wire, connection)

    def close(self, connection: BrokerConnection) -> None:
        """Closes a connection, if it is open.  An answer still to come is thrown away."""
        if connection.closed:
            return
        connection.closed = True
        assert self._poller is not None
        self._poller.remove(connection.wire, connection)
        connection.connection.close()
        connection.leftover = None
        self._reserve(connection, 0)
        connection.out.clear()
        del self.connections[connection]
        _count(self.ended, connection.listener.name)
        self._on_closed(connection)

    def exchange(self, connection: BrokerConnection, loan: Loan) -> tuple[tuple[int, int], bytes]:
        """Puts another socket under a connection.  Bytes that belong to no request yet go with the
        old one."""
        assert self._poller is not None
        self._poller.remove(connection.wire, connection)
        try:
            descriptors = loan.exchange(connection.wire)
        finally:
            self._poller.add(connection.wire, connection)
        unread = connection.take_unread()
        self._reserve(connection, 0)
        return descriptors, unread

    async def run(
        self, network: Network, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Runs both tasks, until cancelled or stopped."""
        async with trio.open_nursery() as nursery:
            self._running = nursery.cancel_scope
            await nursery.start(self.read_loop, network)
            nursery.start_soon(self.write_loop)
            self._nursery = nursery
            task_status.started()

    def stop(self) -> None:
        """Ends a superfluous processor: its connections are closed, and its tasks end."""
        for connection in list(self.connections):
            self.close(connection)
        self._running.cancel()

    # --- reading

    async def read_loop(
        self, network: Network, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with open_poller(network) as poller:
            self._poller = poller
            task_status.started()
            await self._read_rounds(poller)

    async def _read_rounds(self, poller: Poller) -> None:
        while True:
            channel = self._channel
            events = await poller.wait()
            self._round = now = self._perf_ns()
            channel.hold()
            for connection, bits in events:
                if self._perf_ns() - now > _SLICE_NS:
                    now = await self._give_way(now)
                if connection.closed:
                    continue
                if bits & _BROKEN:
                    connection.hung_up = True
                if connection.out and bits != READ:
                    self._send(connection)
                if bits != WRITE:
                    connection.readable = True
                    if connection.in_flight is None and not connection.stalled:
                        self.read(connection)
            for _ in range(len(self._again)):
                if self._perf_ns() - now > _SLICE_NS:
                    now = await self._give_way(now)
                self._read_again(self._again.popleft())
            self.busy_ns += self._perf_ns() - now
            channel.go()

    async def _give_way(self, began: int) -> int:
        """Lets other tasks run within a round, which is long if many connections send much."""
        self.busy_ns += self._perf_ns() - began
        self._channel.go()
        await trio.lowlevel.checkpoint()
        self._channel.hold()
        self._round = now = self._perf_ns()
        return now

    def _unthrottle(self, connection: BrokerConnection) -> None:
        connection.throttled = False
        self.resume(connection)

    def _read_again(self, connection: BrokerConnection) -> None:
        if connection.closed or connection.in_flight is not None or connection.stalled:
            return
        self.read(connection)

    def resume(self, connection: BrokerConnection) -> None:
        """Reads again, as the channel has room (or a throttled client's time is over)."""
        self._round = self._perf_ns()
        self._read_again(connection)

    def read(self, connection: BrokerConnection) -> None:
        """Reads one request, if there is one, and puts it into the channel."""
        if not self.reading or connection.throttled:
            return
        if self._channel.full and self._channel.closed_to(connection):
            self._channel.stall(connection)
            return
        try:
            frame = connection.next_frame(self._scratch, self._view)
            if frame is None:
                assert self._poller is not None
                self._reserve(connection, connection.awaited)
                if connection.readable:
                    self._again.append(connection)
                    self._poller.wake()
                else:
                    self._poller.want_read(connection.wire, connection)
                return
            header = parse_request_header(frame)
        except PeerClosed:
            connection.hung_up_by_peer = True
            if connection.unfinished:
                log.info("connection %s ended early: %s", connection.id, connection.unfinished)
            self.close(connection)
            return
        except (FrameError, BadHeader) as exc:
            log.warning("closing connection %s: %s", connection.id, exc)
            self.close(connection)
            return
        except OSError as exc:
            log.debug("connection %s ended: %s", connection.id, exc)
            connection.hung_up_by_peer = True
            self.close(connection)
            return
        if connection.reserved:
            self._reserve(connection, 0)
        now = self._round
        connection.last_active = now
        connection.client_id = header.client_id or ""
        request = Request(connection, header, frame, now)
        connection.pending.append(request)
        self._channel.put(request)

    def _reserve(self, connection: BrokerConnection, size: int) -> None:
        """Counts a request's bytes from when its size is known until they are not needed."""
        if size != connection.reserved:
            before, connection.reserved = connection.reserved, size
            self._channel.reserve(size - before)

    def overlap(self, connection: BrokerConnection) -> None:
        """Lets the next request come, as the connection's last one waits only for its replicas."""
        if connection.closed or connection.stalled or connection.in_flight is not None:
            return
        self._read_next(connection)

    def _read_next(self, connection: BrokerConnection) -> None:
        if connection.readable or connection.leftover is not None:
            self._round = self._perf_ns()
            self.read(connection)
        else:
            assert self._poller is not None
            self._poller.want_read(connection.wire, connection)

    # --- writing

    def respond(self, request: Request) -> None:
        """Puts the answer into the response queue; an idle processor sends it at once."""
        self.responses.append(request)
        if self._draining:
            return
        if self.gate.shut:
            self.gate.behind[self] = None
        elif len(self.responses) > 1 or self._ready:
            self._writer.wake()
        else:
            self.drain()

    @property
    def unsent_answers(self) -> int:
        """The length of the response queue; a connection with ready answers counts once."""
        return len(self.responses) + len(self._ready)

    def drain(self) -> None:
        """Sends the contents of the response queue, for a millisecond."""
        responses, ready = self.responses, self._ready
        self._draining = True
        started = now = self._perf_ns()
        while responses or ready:
            while responses:
                request = responses.popleft()
                request.returned = True
                ready[request.connection] = None
            if now - started > _SLICE_NS:
                break
            connection = next(iter(ready))
            del ready[connection]
            pending = connection.pending
            if connection.closed or connection.leaving or not pending or not pending[0].returned:
                continue  # its answers wait for those before them
            self._round = now
            self._send_answers(connection)
            now = self._perf_ns()
        self._draining = False
        if ready:
            self._writer.wake()

    async def write_loop(self) -> None:
        responses, ready = self.responses, self._ready
        while True:
            if not responses and not ready and not self._unsent:
                await self._writer.sleep()
            self.drain()
            for _ in range(len(self._unsent)):
                connection = self._unsent.popleft()
                if not connection.closed:
                    self._send(connection)
            if responses or ready or self._unsent:
                await trio.lowlevel.checkpoint()

    def _send_answers(self, connection: BrokerConnection) -> None:
        """Sends the answers that are ready, up to the first request that is not answered yet."""
        now = self._round
        for request in connection.pending:
            if not request.returned:
                break
            request.taken_back = now
            connection.leaving += 1
            if request.parts is not None:  # None: acks=0
                connection.out.extend(request.parts)
                request.parts = None
            if request.then_close or request.throttle_ms:
                break
        if connection.out:
            self._send(connection)
        else:
            self._finish(connection)

    def _send(self, connection: BrokerConnection) -> None:
        if connection.loading:
            return
        try:
            sent = connection.flush()
        except SegmentChanged as exc:
            log.warning("closing connection %s: %s became shorter", connection.id, exc)
            self.close(connection)
            return
        except OSError as exc:
            log.debug("connection %s ended: %s", connection.id, exc)
            self.close(connection)
            return
        if sent is Sent.ALL:
            self._finish(connection)
        elif sent is Sent.BLOCKED:
            assert self._poller is not None
            connection.last_active = self._round  # it took bytes, or has only just begun to wait
            self._poller.want_write(connection.wire, connection)
        elif sent is Sent.COLD:
            assert self._nursery is not None
            connection.last_active = self._round
            connection.loading = True
            self._nursery.start_soon(self._load, connection)
        else:
            self._unsent.append(connection)
            self._writer.wake()

    async def _load(self, connection: BrokerConnection) -> None:
        """Waits for the disk, which may take long, in a task of its own."""
        if connection.closed:
            return
        try:
            await connection.load()
        except OSError as exc:
            log.debug("connection %s ended: %s", connection.id, exc)
            self.close(connection)
        if not connection.closed:
            self._unsent.append(connection)
            self._writer.wake()

    def _finish(self, connection: BrokerConnection) -> None:
        """Accounts for answers that have left, and reads the connection's next request."""
        now = self._perf_ns()
        was_blocked = connection.in_flight is not None
        connection.last_active = now
        leaving, connection.leaving = connection.leaving, 0
        for _ in range(leaving):
            request = connection.pending.popleft()
            self._on_sent(request, now)
            if request.then_close:
                self.close(connection)
                return
            if request.throttle_ms:
                connection.throttled = True
                self._call_later(request.throttle_ms, lambda: self._unthrottle(connection))
        if was_blocked and connection.in_flight is None:
            self._read_next(connection)
        if not connection.closed and connection.pending and connection.pending[0].returned:
            self._round = now
            self._send_answers(connection)


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
