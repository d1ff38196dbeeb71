"""Requests to one broker, spread over connections, partitions and offsets, as a process.

    python -I -m highwater.bench.loads.spread_requests '{"api": "produce", "host": ..., ...}'

One request is in flight at a time, so that what is measured is a request and not a queue.  Each
goes out on the next connection; its partition, and for `fetch` its offset, are drawn.  `produce`
(v7) sends a record of 100 bytes with acks=1, `fetch` (v4) reads the batch at the offset.  Prints
one JSON line: {"requests", "seconds", "cpu_us", "p50_us", "p99_us"}, of the measured requests,
where `cpu_us` is the CPU time of process `pid` for each; ends with 1 where an answer has an error,
or a fetch got nothing.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from dataclasses import asdict, dataclass
from struct import pack, unpack_from

from highwater.base.wall_clock import wall_ms
from highwater.bench.figures.cpu import cpu_seconds
from highwater.bench.figures.rows import percentile
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch

PRODUCE, FETCH = 0, 1
RECORD_BYTES = 100
FETCH_BYTES = 1000
PATIENCE_S = 30
UNTIMED = 0.1
"""The share of requests before the measured ones."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The settings of one such process; a fetch reads below `offsets` of every partition."""

    api: str
    host: str
    port: int
    topic: str
    partitions: int = 1
    connections: int = 1
    requests: int = 5000
    offsets: int = 1
    in_order: bool = False
    """Each partition in turn, and nothing beforehand, instead of those that are drawn."""
    pid: int = 0
    """The broker's process; 0: its CPU time is not asked for."""

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-m", __spec__.name, json.dumps(asdict(self))]


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    name = topic.encode()
    body = pack(">hhiih", -1, 1, 30_000, 1, len(name)) + name
    body += pack(">iii", 1, partition, len(batch)) + batch
    return _framed(request_header(PRODUCE, 7, 1, "bench") + body)


def fetch_frame(topic: str, partition: int, offset: int) -> bytes:
    name = topic.encode()
    body = pack(">iiiibih", -1, 0, 0, FETCH_BYTES, 0, 1, len(name)) + name
    body += pack(">iiqi", 1, partition, offset, FETCH_BYTES)
    return _framed(request_header(FETCH, 4, 1, "bench") + body)


def _framed(frame: bytes) -> bytes:
    return pack(">i", len(frame)) + frame


def problem(api: str, topic: str, answer: bytes) -> str:
    """What is wrong with an answer's frame, in words; empty for nothing."""
    at = 4 + 2 + len(topic.encode()) + 4 + 4  # topics, name, partitions, index
    if api == "produce":
        (code,) = unpack_from(">h", answer, 4 + at)
        return f"error {code}" if code else ""
    code, _, _, aborted = unpack_from(">hqqi", answer, 4 + 4 + at)
    if code:
        return f"error {code}"
    (size,) = unpack_from(">i", answer, 4 + 4 + at + 22 + max(aborted, 0) * 16)
    return "" if size > 0 else "it has no records"


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size)
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise SystemExit("the broker closed a connection")
        data += more
    return data


def run(spread: Spread) -> dict[str, float]:
    drawn, times = random.Random(1), []
    batch = bytes(build_batch([Record(None, drawn.randbytes(RECORD_BYTES), wall_ms())]))
    address = (spread.host, spread.port)
    sockets = [socket.create_connection(address, PATIENCE_S) for _ in range(spread.connections)]
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    untimed = 0 if spread.in_order else int(spread.requests * UNTIMED)
    pids = [spread.pid] * bool(spread.pid)
    clock, began, cpu_before = time.perf_counter, time.perf_counter(), cpu_seconds(pids)
    for number in range(untimed + spread.requests):
        if number == untimed:
            began, cpu_before = clock(), cpu_seconds(pids)
        sock = sockets[number % len(sockets)]
        turn = number if spread.in_order else drawn.randrange(spread.partitions)
        partition = turn % spread.partitions
        if spread.api == "produce":
            frame = produce_frame(spread.topic, partition, batch)
        else:
            frame = fetch_frame(spread.topic, partition, drawn.randrange(spread.offsets))
        sent = clock()
        sock.sendall(frame)
        (size,) = unpack_from(">i", _exactly(sock, 4))
        answer = _exactly(sock, size)
        if number >= untimed:
            times.append((clock() - sent) * 1e6)
        if wrong := problem(spread.api, spread.topic, answer):
            raise SystemExit(f"{spread.api} of {spread.topic}-{partition}: {wrong}")
    took, used = clock() - began, cpu_seconds(pids) - cpu_before
    return {
        "requests": spread.requests,
        "seconds": took,
        "cpu_us": used * 1e6 / spread.requests,
        "p50_us": percentile(times, 0.5),
        "p99_us": percentile(times, 0.99),
    }


if __name__ == "__main__":
    print(json.dumps(run(Spread(**json.loads(sys.argv[1])))))
