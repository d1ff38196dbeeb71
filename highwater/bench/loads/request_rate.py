"""Requests a second to one broker, as a process: raw sockets, one in flight on each connection.

    python -I -m highwater.bench.loads.request_rate metadata|api-versions HOST PORT TOPIC \
        CONNECTIONS SECONDS

The answers are counted by their size, and not decoded.  Prints one JSON line: {"a_second"}.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from struct import pack, unpack_from

from highwater.kafka.wire.header import request_header

API_VERSIONS, METADATA = 18, 3
METADATA_VERSION = 7
PATIENCE_S = 30
UNTIMED_S = 0.5


def command(
    api: str, address: tuple[str, int], topic: str, connections: int, seconds: float
) -> list[str]:
    host, port = address
    words = [api, host, str(port), topic, str(connections), str(seconds)]
    return [sys.executable, "-I", "-m", __spec__.name, *words]


def request(api: str, topic: str) -> bytes:
    """A whole frame: ApiVersions v0, or Metadata v7 of one topic."""
    if api == "api-versions":
        frame = request_header(API_VERSIONS, 0, 1, "bench")
    else:
        name = topic.encode()
        body = pack(">ih", 1, len(name)) + name + b"\0"
        frame = request_header(METADATA, METADATA_VERSION, 1, "bench") + body
    return pack(">i", len(frame)) + frame


class Connection:
    """A blocking socket with one request in flight."""

    def __init__(self, address: tuple[str, int], frame: bytes) -> None:
        self.socket = socket.create_connection(address, PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame
        self._data = b""

    def send(self) -> None:
        self.socket.sendall(self._frame)

    def answered(self) -> bool:
        """Reads once; True where the answer is whole."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the broker closed the connection")
        self._data = self._data + data if self._data else data
        if len(self._data) < 4 or len(self._data) < unpack_from(">i", self._data)[0] + 4:
            return False
        self._data = b""
        return True


def main(arguments: list[str]) -> None:
    api, host, port, topic, connections, seconds = arguments
    frame = request(api, topic)
    poll = select.epoll() if sys.platform == "linux" else None
    by_fd: dict[int, Connection] = {}
    for _ in range(int(connections)):
        connection = Connection((host, int(port)), frame)
        by_fd[connection.socket.fileno()] = connection
        if poll is not None:
            poll.register(connection.socket, select.EPOLLIN)
        connection.send()

    def ready() -> list[int]:
        if poll is not None:
            return [fd for fd, _ in poll.poll(PATIENCE_S)]
        return list(select.select(list(by_fd), [], [], PATIENCE_S)[0])

    count, began = 0, 0.0
    until = time.perf_counter() + UNTIMED_S
    while True:
        now = time.perf_counter()
        if now >= until:
            if began:
                break
            count, began, until = 0, now, now + float(seconds)
        for fd in ready():
            connection = by_fd[fd]
            if connection.answered():
                count += 1
                connection.send()
    print(json.dumps({"a_second": count / (now - began)}))


if __name__ == "__main__":
    main(sys.argv[1:])
