"""Many producing connections from one process: the load of the pipeline's benchmarks.

    python -I -m highwater.bench.loads.many_producers '{"host": ..., "port": ..., ...}'

One epoll loop without a client library costs a fraction of the broker's side, and every sent byte
comes from the same buffer.  Each connection has one request outstanding and sends the next at the
answer (a closed loop).  With `rate`, requests fall due at that rate over all connections whatever
the broker does, and are sent without waiting for answers.

It prints "ready" once all are connected, and a line of JSON at the end: when its input closes, when
all connections are lost, or after `seconds`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from struct import Struct

from highwater.base.wall_clock import wall_ms
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch

_VERSION = 7
_SIZE = Struct(">i")
_RESULT = Struct(">hq")


@dataclass(frozen=True, slots=True)
class Pressure:
    """The settings of one such process."""

    host: str
    port: int
    topic: str
    connections: int
    batch_bytes: int
    rate: float = 0
    """Requests a second over all connections; 0: a closed loop."""
    seconds: float = 3600

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-m", __spec__.name, json.dumps(asdict(self))]


@dataclass(slots=True)
class Outcome:
    acked: int = 0
    highest_offset: int = -1
    errors: dict[str, int] = field(default_factory=dict)
    latency_ms: list[float] = field(default_factory=list)
    offered: int = 0
    lost_connections: int = 0


def produce_frame(topic: str, batch_bytes: int, acks: int = -1, timeout_ms: int = 60_000) -> bytes:
    """A Produce v7 of one batch of about so many bytes, for partition 0."""
    value = os.urandom(max(batch_bytes - 100, 1))
    batch = build_batch([Record(None, value, wall_ms())])
    name = topic.encode()
    body = b"".join(
        (
            Struct(">h").pack(-1),
            Struct(">hii").pack(acks, timeout_ms, 1),
            Struct(">h").pack(len(name)),
            name,
            Struct(">iii").pack(1, 0, len(batch)),
            bytes(batch),
        )
    )
    frame = request_header(0, _VERSION, 1, "pressure") + body
    return _SIZE.pack(len(frame)) + frame


class _Connection:
    __slots__ = ("answer", "due", "out", "sent_at", "sock", "writing")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.out: memoryview | None = None
        self.answer = bytearray()
        self.sent_at: deque[float] = deque()
        self.due = 0
        self.writing = False


class _Driver:
    def __init__(self, pressure: Pressure) -> None:
        self.pressure = pressure
        self.frame = memoryview(produce_frame(pressure.topic, pressure.batch_bytes))
        self.outcome = Outcome()
        self.epoll = select.epoll()
        self.open: dict[int, _Connection] = {}
        self.skip = 4 + 4 + 4 + 2 + len(pressure.topic.encode()) + 4 + 4  # up to the error code

    def connect(self) -> None:
        p = self.pressure
        for _ in range(p.connections):
            sock = socket.create_connection((p.host, p.port), timeout=30)
            sock.setblocking(False)
            self.open[sock.fileno()] = _Connection(sock)
            self.epoll.register(sock, select.EPOLLIN)

    def run(self) -> Outcome:
        p, began = self.pressure, time.monotonic()
        until = began + p.seconds
        self.epoll.register(0, select.EPOLLIN)
        connections = list(self.open.values())
        if not p.rate:
            for c in connections:
                self.send(c)
        turn = 0
        while (now := time.monotonic()) < until and self.open:
            if p.rate:
                wanted = int((now - began) * p.rate)
                while self.outcome.offered < wanted:
                    c = connections[turn % len(connections)]
                    turn += 1
                    self.outcome.offered += 1
                    c.due += 1
                    if c.out is None and c.sock.fileno() in self.open:
                        self.send(c)
            for fd, bits in self.epoll.poll(0.002 if p.rate else 0.05):
                if fd == 0:
                    if not os.read(0, 4096):
                        return self.outcome
                    continue
                c = self.open[fd]
                try:
                    if bits & select.EPOLLOUT:
                        self.go_on(c)
                    if bits & ~select.EPOLLOUT:
                        self.receive(c)
                except OSError:
                    self.lose(c)
        return self.outcome

    def lose(self, c: _Connection) -> None:
        self.outcome.lost_connections += 1
        self.epoll.unregister(c.sock)
        del self.open[c.sock.fileno()]
        c.sock.close()

    def send(self, c: _Connection) -> None:
        self.begin(c)
        self.go_on(c)

    def begin(self, c: _Connection) -> None:
        c.out = self.frame
        c.sent_at.append(time.monotonic())
        c.due -= 1

    def go_on(self, c: _Connection) -> None:
        while c.out is not None:
            try:
                n = c.sock.send(c.out)
            except BlockingIOError:
                if not c.writing:
                    c.writing = True
                    self.epoll.modify(c.sock, select.EPOLLIN | select.EPOLLOUT)
                return
            rest = c.out[n:]
            c.out = rest if len(rest) else None
            if c.out is None and self.pressure.rate and c.due > 0:
                self.begin(c)
        if c.writing:
            c.writing = False
            self.epoll.modify(c.sock, select.EPOLLIN)

    def receive(self, c: _Connection) -> None:
        data = c.sock.recv(65536)
        if not data:
            raise ConnectionError("closed")
        c.answer += data
        while len(c.answer) >= 4:
            (size,) = _SIZE.unpack_from(c.answer)
            if len(c.answer) < 4 + size:
                return
            code, offset = _RESULT.unpack_from(c.answer, self.skip)
            del c.answer[: 4 + size]
            self.answered(c, code, offset)

    def answered(self, c: _Connection, code: int, offset: int) -> None:
        now, outcome = time.monotonic(), self.outcome
        if c.sent_at:
            outcome.latency_ms.append((now - c.sent_at.popleft()) * 1000)
        if code == 0:
            outcome.acked += 1
            outcome.highest_offset = max(outcome.highest_offset, offset)
        else:
            outcome.errors[str(code)] = outcome.errors.get(str(code), 0) + 1
        if not self.pressure.rate:
            self.send(c)


def main(arguments: list[str]) -> int:
    driver = _Driver(Pressure(**json.loads(arguments[0])))
    try:
        driver.connect()
    except OSError as error:
        print(f"pressure: {error}", file=sys.stderr)
        return 1
    print("ready", flush=True)
    print(json.dumps(asdict(driver.run())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
