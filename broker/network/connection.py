"""One client's connection on its processor: bytes in, frames out, and back.

Reading.  The processor has one scratch buffer for all its connections.  A system call fills it, and
a frame found there is copied into a buffer of its own, which belongs to the request (Produce
patches offsets into it in place).  So an idle connection holds no buffer at all.  If a frame is
larger than the scratch buffer, its rest is read straight into a buffer of its own, from the
processor's pool.  That buffer grows with the bytes that have arrived: a client that announces 100
MiB and sends nothing costs little.  After a large frame the next one is expected to be as large,
and is read into its own buffer from its first byte on.

Writing.  The parts of an answer leave by as few system calls as possible: neighbouring buffers are
gathered, and file slices go by sendfile, together with the buffers before them (MSG_MORE); slices
of a few kilobytes are read, and gathered like buffers.  For records that have left the page cache,
sendfile would wait for the disk, and everybody with it (in Kafka, all connections of a network
thread: KAFKA-7504).  So a worker thread first loads such records, a megabyte at a time.

Order.  Answers leave in the order of the requests, and handlers see one request of a connection at
a time: bytes of the next ones wait here (`leftover`) or in the socket.  There is one exception: a
Produce that was appended and waits for its replicas (in the purgatory) does not hold up the next
request, up to PIPELINE of them.  The order of appends stays the same, and one round of follower
fetches then serves everything that a producer has in flight; Kafka mutes the connection and needs a
round for each.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from highwater.broker.request.response import FileSlice, Part
from highwater.kafka.wire.header import API_VERSIONS

if TYPE_CHECKING:
    from highwater.broker.network.processor import Processor
    from highwater.broker.network.request import Request
    from highwater.kafka.security.authentication import Authentication
    from highwater.world.api import Buffer, Connection

_SIZE = Struct(">i")
SCRATCH_BYTES = 65536
PIPELINE = 10
_FIRST_BYTES = 1 << 16
_LARGE_BYTES = SCRATCH_BYTES // 2
_READ_BUDGET_BYTES = 4 << 20
_SEND_BUDGET_BYTES = 4 << 20
_LOAD_BYTES = 1 << 20
_TLS_HELLO = b"\x16\x03"

Frame = bytearray | memoryview


class ListenerInfo(NamedTuple):
    """Facts shared by every connection of a listener."""

    name: str
    security_protocol: str
    lent: bool = False
    """Whether a harness lends the listener's socket to this broker (`handing_over`)."""


class FrameError(Exception):
    """Raised for bytes that are no frame; the message is the line for the log."""


class PeerClosed(Exception):
    """The client closed (its half of) the connection."""


class SegmentChanged(Exception):
    """Raised when a segment became shorter while an answer from it was being sent."""


class Sent(Enum):
    ALL = "all"
    BLOCKED = "blocked"
    BUDGET = "budget"
    """More could be sent now, but other connections have their turn first."""
    COLD = "cold"
    """The next bytes are only on the disk: `load` them."""


class BrokerConnection:
    """One accepted connection."""

    __slots__ = (
        "_begin",
        "_expect",
        "_file_sent",
        "_filled",
        "_frame",
        "_id",
        "_loaded",
        "_size",
        "authentication",
        "client_id",
        "closed",
        "connection",
        "hung_up",
        "hung_up_by_peer",
        "index",
        "last_active",
        "leaving",
        "leftover",
        "listener",
        "loading",
        "max_frame",
        "out",
        "peer",
        "pending",
        "principal",
        "processor",
        "readable",
        "reserved",
        "software",
        "stalled",
        "throttled",
        "wire",
    )

    def __init__(
        self,
        connection: Connection,
        listener: ListenerInfo,
        processor: Processor,
        max_frame: int,
        index: int,
        wire: Connection | None = None,
    ) -> None:
        """`wire` is the socket's own connection if `connection` is TLS over it."""
        self.connection = connection
        self.wire = connection if wire is None else wire
        self.listener = listener
        self.processor = processor
        self.max_frame = max_frame
        self.index = index
        self.peer = connection.peer
        self.principal = "User:ANONYMOUS"
        self.authentication: Authentication | None = None
        self.software = ("unknown", "unknown")
        self.client_id: str | None = None
        """The client id in the last request; None before the first."""
        self.closed = False
        self.readable = False
        self.hung_up = False
        self.hung_up_by_peer = False
        self.stalled = False
        self.pending: deque[Request] = deque()
        """Requests whose answers have not left yet, in order."""
        self.leaving = 0
        """How many of `pending`, from the first on, have their answers in `out`."""
        self.last_active = 0
        self.reserved = 0
        """Bytes of the channel's memory held for a request that has arrived in part."""
        self.throttled = False
        self.leftover: memoryview | None = None
        self.out: deque[Part] = deque()
        self._frame: bytearray | None = None
        """The buffer of an incomplete frame, which begins at `_begin` and will have `_size` bytes;
        the buffer is filled up to `_filled`."""
        self._begin = 0
        self._size = 0
        self._filled = 0
        self._expect = 0
        """The size of the last frame, if it was large."""
        self._file_sent = 0
        self._loaded = 0
        """Up to which byte the slice that is being sent was just loaded."""
        self.loading = False
        """Whether a task runs `load`, or is about to."""
        self._id: str | None = None

    @property
    def id(self) -> str:
        """In Kafka's form: local address, remote address, and the processor's count."""
        if self._id is None:
            local, peer = self.connection.local, self.peer
            self._id = f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{self.index}"
        return self._id

    @property
    def in_flight(self) -> Request | None:
        """The request that keeps the connection from being read, if any."""
        pending = self.pending
        if not pending or (pending[-1].overlaps and len(pending) < PIPELINE):
            return None
        return pending[-1]

    @property
    def sending(self) -> bool:
        return bool(self.out)

    @property
    def unfinished(self) -> str | None:
        """What is incomplete, for the log; None between an answer and the next request."""
        if self.out:
            return "its answer is not fetched"
        if self._frame is not None:
            return f"{self._filled - self._begin} of {self._size} bytes of its request came"
        if self.leftover is not None and not self.pending:
            return f"{len(self.leftover)} bytes of its request came"
        return None

    @property
    def awaited(self) -> int:
        """The size of the request that has arrived in part; 0 if it is not known yet."""
        return self._size if self._frame is not None else 0

    @property
    def unsent(self) -> int:
        """The number of bytes in `out`."""
        sizes = (p.size if isinstance(p, FileSlice) else len(p) for p in self.out)
        return sum(sizes) - self._file_sent

    # --- reading

    def take_unread(self) -> bytes:
        """Removes and returns the bytes that have arrived and belong to no whole request."""
        came = b""
        if self._frame is not None:
            begun = memoryview(self._frame)[self._begin : self._filled]
            came = _SIZE.pack(self._size) + bytes(begun)
        came += bytes(self.leftover or b"")
        self._frame = self.leftover = None
        return came

    def next_frame(self, scratch: bytearray, view: memoryview) -> Frame | None:
        """The next whole frame, or None if more must arrive.

        Raises FrameError, PeerClosed or OSError.
        """
        if self._frame is not None:
            return self._continue_frame()
        left = self.leftover
        if left is not None:
            if len(left) >= 4:
                frame = self._frame_of(left)
                return frame if frame is not None else self._continue_frame()
            offset = len(left)
            view[:offset] = left
            self.leftover = None
        else:
            offset = 0
        if not self.readable:
            if offset:
                self.leftover = memoryview(bytes(view[:offset]))
            return None
        if self._expect and not offset:
            return self._read_large()
        end = self._receive(view, offset)
        if end < 4:
            self.leftover = memoryview(bytes(view[:end])) if end else None
            return None
        (size,) = _SIZE.unpack_from(scratch)
        if size + 4 == end and size <= self.max_frame:
            return scratch[4:end]
        frame = self._frame_of(view[:end])
        if frame is not None and self.leftover is not None:
            self.leftover = memoryview(bytes(self.leftover))
        return frame if frame is not None else self._continue_frame()

    def _receive(self, view: memoryview, offset: int) -> int:
        """Makes one system call; returns the end of the bytes in the buffer."""
        n = self.connection.recv_into(view[offset:] if offset else view)
        if n is None:
            self.readable = False
            return offset
        if n == 0:
            self.leftover = memoryview(bytes(view[:offset])) if offset else None
            raise PeerClosed
        if n < len(view) - offset and not self.hung_up:
            self.readable = False  # drained; the poller reports when more has arrived
        return offset + n

    def _read_large(self) -> Frame | None:
        """Reads into a buffer for a frame as large as the last one; the real size may differ."""
        buffer = self.processor.buffers.take(self._expect + 4)
        whole = memoryview(buffer)
        end = self._receive(whole[: self._expect + 4], 0)
        if end < 4:
            self.leftover = memoryview(bytes(whole[:end])) if end else None
            return None
        size = self._size_of(whole[:end])
        if size + 4 > len(buffer):
            self._begin_frame(size, whole[4:end])
            return self._continue_frame()
        if end > size + 4:
            self.leftover = memoryview(bytes(whole[size + 4 : end]))
            end = size + 4
        self._frame, self._begin, self._size, self._filled = buffer, 4, size, end
        return self._continue_frame()

    def _size_of(self, data: memoryview) -> int:
        (size,) = _SIZE.unpack_from(data)
        if not 0 <= size <= self.max_frame:
            raise FrameError(self._describe(size, bytes(data[:16])))
        return int(size)

    def _frame_of(self, data: memoryview) -> Frame | None:
        """The first frame in `data`, which has its size; None if its end is still to come."""
        size = self._size_of(data)
        have = len(data) - 4
        if have >= size:
            self.leftover = data[4 + size :] if have > size else None
            return bytearray(data[4 : 4 + size])
        self._begin_frame(size, data[4:])
        self.leftover = None
        return None

    def _begin_frame(self, size: int, start: memoryview) -> bytearray:
        """Makes a buffer for an incomplete frame, no larger than what seems to be coming."""
        have = len(start)
        buffer = self.processor.buffers.take(min(size, max(_FIRST_BYTES, 2 * have)))
        with memoryview(buffer) as whole:
            whole[:have] = start
        self._frame, self._begin, self._size, self._filled = buffer, 0, size, have
        return buffer

    def _continue_frame(self) -> Frame | None:
        buffer = self._frame
        assert buffer is not None
        end = self._begin + self._size
        budget = _READ_BUDGET_BYTES
        filled = self._filled
        while self.readable and filled < end:
            if filled == len(buffer):
                buffer = self._begin_frame(self._size, memoryview(buffer)[self._begin :])
                end, filled = self._size, self._filled
            with memoryview(buffer) as whole, whole[filled:end] as rest:
                n = self.connection.recv_into(rest)
            if n is None:
                self.readable = False
                break
            if n == 0:
                raise PeerClosed
            filled += n
            budget -= n
            if budget < 0:
                break
        self._filled = filled
        if filled < end:
            return None
        self._frame = None
        self._expect = self._size if self._size >= _LARGE_BYTES else 0
        return memoryview(buffer)[self._begin : end]

    def _describe(self, size: int, start: bytes) -> str:
        if start[:2] == _TLS_HELLO:
            return (
                f"a TLS handshake on listener {self.listener.name}, which speaks "
                f"{self.listener.security_protocol}; use a listener that speaks SSL"
            )
        if start[:4].isalpha() or start[:4] in (b"GET ", b"PUT "):
            return f"{start!r} is not the Kafka protocol (is this an HTTP client?)"
        return (
            f"a request of {size} bytes; socket.request.max.bytes={self.max_frame} is the limit"
            if size > 0
            else f"a request of {size} bytes"
        )

    # --- writing

    def flush(self) -> Sent:
        """Sends as much as the socket takes; raises OSError or SegmentChanged."""
        out = self.out
        budget = _SEND_BUDGET_BYTES
        while out:
            if budget <= 0:
                return Sent.BUDGET
            first = out[0]
            if isinstance(first, FileSlice) and not self._read_small(0):
                known = self._in_memory(first)
                if not known:
                    return Sent.COLD
                n = self._send_file(first, known)
            else:
                n = self._send_buffers()
            if n is None:
                return Sent.BLOCKED
            budget -= n
        return Sent.ALL

    def _send_buffers(self) -> int | None:
        out = self.out
        views: list[Buffer] = []
        more = False
        for index, part in enumerate(out):
            if isinstance(part, FileSlice):
                if not self._read_small(index):
                    more = True
                    break
                part = out[index]
            views.append(part)  # type: ignore[arg-type]
        n = self.connection.send(views, more)
        if n is None:
            return None
        left = n
        while left:
            size = len(views[0])
            if left < size:
                out[0] = memoryview(views[0])[left:]
                return n
            left -= size
            del views[0]
            out.popleft()
        while views and not len(views[0]):
            del views[0]
            out.popleft()
        return n

    def _read_small(self, index: int) -> bool:
        """Puts a small slice's bytes in its place, if they are in memory: to read them, and send
        them with the header, costs less than sendfile after the header."""
        part = self.out[index]
        assert isinstance(part, FileSlice)
        small = part.size <= self.connection.small_bytes
        if not small or (index == 0 and (self._file_sent or self._loaded)):
            return False
        if part.file.cached(part.position, part.size) < part.size:
            return False
        data = part.file.read_to_send(part.position, part.size)
        if len(data) != part.size:
            raise SegmentChanged(part.file.path)
        self.out[index] = data
        return True

    def _in_memory(self, part: FileSlice) -> int:
        """How many of the slice's next bytes can be sent at once; 1 if none are left."""
        left = part.size - self._file_sent
        if not left:
            return 1
        if self._loaded > self._file_sent:
            return self._loaded - self._file_sent
        return part.file.cached(part.position + self._file_sent, left)

    async def load(self) -> None:
        """Loads the next bytes into memory; they are then sent, even if they are gone again."""
        part, sent = self.out[0], self._file_sent
        assert isinstance(part, FileSlice)
        n = min(part.size - sent, _LOAD_BYTES)
        try:
            await part.file.load(part.position + sent, n)
        finally:
            self.loading = False
        self._loaded = sent + n

    def _send_file(self, part: FileSlice, most: int) -> int | None:
        sent = self._file_sent
        if part.size == sent:
            n: int | None = 0
        else:
            size = min(part.size - sent, most)
            n = self.connection.send_file(part.file, part.position + sent, size)
            if n is None:
                return None
            if n == 0:
                raise SegmentChanged(part.file.path)
        sent += n or 0
        if sent == part.size:
            self.out.popleft()
            sent = self._loaded = 0
        self._file_sent = sent
        return n


def api_versions_error(error: int, versions: tuple[int, int]) -> bytes:
    """The v0 answer to an ApiVersions of unknown version, with that API's range (KIP-511)."""
    return Struct(">hihhh").pack(error, 1, API_VERSIONS, *versions)
