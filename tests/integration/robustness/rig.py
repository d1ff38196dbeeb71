"""Single brokers as processes, and small tools that test them from outside."""

from __future__ import annotations

import re
import signal
import socket
import struct
from pathlib import Path
from typing import Any

from highwater.child_processes import Child
from highwater.cluster.ports import free_ports
from highwater.cluster.processes import zookeeper_process as zookeeper
from highwater.cluster.processes.programs import Highwater, Program
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.header import request_header, response_body_position
from tests.waiting import eventually

Address = tuple[str, int]


_given: set[int] = set()


def fresh_port() -> int:
    """A free port that no broker here was given before."""
    port = next(p for p in free_ports(len(_given) + 1) if p not in _given)
    _given.add(port)
    return port


class ZooKeeper:
    """ZooKeeper's own server, or the embedded one where there is no Java; each test has a path of
    its own in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, fresh_port()
        self._paths = iter(range(1_000_000))
        self._command = self.prepared()
        self.start()

    def prepared(self) -> list[str]:
        """Its files, and the command that starts it."""
        kind = zookeeper.for_a_proof("")
        return zookeeper.start_of(kind, self.folder, self.port, 500)

    def start(self) -> None:
        output = self.folder / "output.log"
        self.child = Child("zookeeper", self._command, output=output, cwd=self.folder)
        eventually(lambda: zookeeper.answers(self.port), "ZooKeeper answers", self.child.new_output)

    def fresh_path(self) -> str:
        """A path for zookeeper.connect: a cluster that no broker knows yet."""
        return f"127.0.0.1:{self.port}/test{next(self._paths)}"

    def end(self) -> None:
        self.child.signal(signal.SIGKILL)
        self.child.wait(60)


class JavasZooKeeper(ZooKeeper):
    def prepared(self) -> list[str]:
        return zookeeper.prepare(self.folder, self.port, 500)


class BrokerProcess:
    """`python -I -m highwater.broker` in a folder of its own; not started at first."""

    def __init__(
        self, folder: Path, zookeeper_connect: str, number: int = 1, **properties: str
    ) -> None:
        self.number = number
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = fresh_port()
        self.properties = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": zookeeper_connect,
            "controlled.shutdown.retry.backoff.ms": "50",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        self.child: Child | None = None
        self.program: Program = Highwater()

    @property
    def address(self) -> Address:
        return "127.0.0.1", self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> BrokerProcess:
        program = self.program
        path = self.folder / "server.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in self.properties.items()))
        self.child = Child(
            f"broker-{self.number}", program.command(path, "test"),
            output=self.folder / "output.log", cwd=self.folder, env=program.environment(),
        )  # fmt: skip
        return self

    def serving(self) -> BrokerProcess:
        """Starts it, and waits until it answers."""
        if self.child is None or not self.child.running:
            self.start()

        def ready() -> bool:
            assert self.running, f"it has ended:\n{self.output}"
            known = f"started broker {self.number} ", f"[KafkaServer id={self.number}] started"
            return any(line in self.output for line in known)

        eventually(ready, "the broker serves", lambda: self.output)
        return self

    @property
    def _child(self) -> Child:
        assert self.child is not None, "not started"
        return self.child

    @property
    def running(self) -> bool:
        return self._child.running

    @property
    def output(self) -> str:
        """Its output since its last start, logs and errors together."""
        return self._child.new_output()

    def lines(self, pattern: str) -> list[str]:
        return [line for line in self.output.splitlines() if re.search(pattern, line)]

    def signal(self, number: signal.Signals) -> None:
        self._child.signal(number)

    def ended(self, within_s: float = 60) -> int:
        """Its exit code, once it has ended on its own."""
        eventually(lambda: not self.running, "the broker ends", lambda: self.output, within_s)
        code = self._child.popen.returncode
        assert isinstance(code, int)
        return code

    def last_line(self) -> str:
        return self._child.last_words()

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()

    def end(self) -> None:
        if self.child is not None:
            self.child.signal(signal.SIGKILL)
            self.child.wait(60)


def assert_one_line(broker: BrokerProcess, code: int, *words: str) -> None:
    """Checks that it ended with this code, gave the reason on its last line and nowhere else, and
    left no traceback."""
    assert broker.ended() == code, broker.output
    assert "Traceback" not in broker.output, broker.output
    line = broker.last_line()
    for word in words:
        assert word in line, f"{word!r} is not in {line!r}"
    assert len(broker.lines(r"^broker \d+ stops: ")) == (1 if code == 1 else 0), broker.output


def connect(address: Address, timeout_s: float = 10) -> socket.socket:
    return socket.create_connection(address, timeout=timeout_s)


def frame_of(request: Any, version: int, correlation_id: int = 7) -> bytes:
    body = request_header(request.API_KEY, version, correlation_id, "robustness")
    body += bytes(encode_request(request, version))
    return struct.pack(">i", len(body)) + body


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += chunk
    return data


def receive_all(sock: socket.socket) -> bytes:
    """Receives until the other side closes."""
    data = b""
    while chunk := sock.recv(65536):
        data += chunk
    return data


def call(address: Address, request: Any, version: int, timeout_s: float = 10) -> Any:
    """One request, one answer, on a connection of its own."""
    with connect(address, timeout_s) as sock:
        sock.sendall(frame_of(request, version))
        (size,) = struct.unpack(">i", receive(sock, 4))
        view = memoryview(receive(sock, size))
    start = response_body_position(request.API_KEY, version, view)
    return decode_response(request.API_KEY, version, view[start:])


def metadata(address: Address, topics: list[str], *, create: bool = False) -> Any:
    wanted = [messages.MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
    request = messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
    return call(address, request, 7)


def leader_of(address: Address, topic: str, *, create: bool = False) -> int:
    """The leader of partition 0, by this broker's metadata; -1 for none."""
    found = metadata(address, [topic], create=create).topics[0].partitions
    return next((p.leader_id for p in found if p.partition_index == 0), -1)


def closed_by_broker(sock: socket.socket) -> bool:
    """Waits for the end of the connection, and drops the bytes that come before it."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True
