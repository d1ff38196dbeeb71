"""A well-behaved client beside hostile ones: it produces at a fixed rate, in a process of its own.

Each line on stdin ends an interval, and is answered by one line of JSON: how many requests were
answered in it, and how long they took (ms, from when each was due).  At the end of stdin it reads
everything back, and tells how many acknowledged records are missing.  `Beside` runs it.

usage: python -m tests.long.beside HOST PORT TOPIC [RATE]
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from highwater.kafka.wire.codec import decode_response
from highwater.kafka.wire.header import response_body_position
from highwater.kafka.wire.messages import FetchRequest, ProduceRequest
from highwater.kafka.wire.records import Record, build_batch, records_of
from tests.integration.robustness.rig import Address, connect, frame_of, receive

RATE = 100
_VERSION = 8


class Client:
    """One connection, which must never break."""

    def __init__(self, address: Address, topic: str) -> None:
        self.topic = topic
        self._sock = connect(address, 20)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: Any, version: int) -> Any:
        self._sock.sendall(frame_of(request, version))
        (size,) = struct.unpack(">i", receive(self._sock, 4))
        view = memoryview(receive(self._sock, size))
        start = response_body_position(request.API_KEY, version, view)
        return decode_response(request.API_KEY, version, view[start:])

    def produce(self, value: bytes) -> int:
        """The offset of one record, acknowledged by all replicas."""
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=0, records=bytes(build_batch([Record(None, value)])))
        topic = data(name=self.topic, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = self.call(request, _VERSION).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def read(self, end: int) -> dict[int, bytes | None]:
        """Every record below this offset."""
        found: dict[int, bytes | None] = {}
        offset, wanted = 0, FetchRequest.FetchTopic
        while offset < end:
            part = wanted.FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            topic = wanted(topic=self.topic, partitions=[part])
            request = FetchRequest(
                replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic]
            )
            answer = self.call(request, 4).responses[0].partitions[0]
            assert answer.error_code == 0, answer
            records = list(records_of(answer.records or b""))
            if not records:
                break
            found |= {record.offset: record.value for record in records}
            offset = records[-1].offset + 1
        return found


def _figures(taken: list[float]) -> dict[str, float]:
    taken.sort()
    at = [taken[min(len(taken) - 1, int(len(taken) * p))] if taken else 0.0 for p in (0.5, 0.99, 1)]
    return {"count": len(taken)} | dict(zip(("p50", "p99", "worst"), at, strict=True))


def _listen(lines: queue.Queue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put("end")


def main(host: str, port: str, topic: str, rate: str = str(RATE)) -> None:
    client = Client((host, int(port)), topic)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    acked: dict[int, bytes] = {}
    taken: list[float] = []
    due = time.monotonic()
    while True:
        due += 1 / float(rate)
        time.sleep(max(0.0, due - time.monotonic()))
        value = b"%d" % len(acked)
        acked[client.produce(value)] = value
        taken.append((time.monotonic() - due) * 1000)
        try:
            word = lines.get_nowait().strip()
        except queue.Empty:
            continue
        print(json.dumps(_figures(taken)), flush=True)
        taken, due = [], time.monotonic()
        if word == "end":
            break
    found = client.read(max(acked) + 1)
    missing = sum(found.get(offset) != value for offset, value in acked.items())
    print(json.dumps({"acknowledged": len(acked), "missing": missing}), flush=True)


class Beside:
    """The client in a process of its own, as the harness sees it."""

    def __init__(self, address: Address, topic: str, rate: float = RATE) -> None:
        words = (address[0], str(address[1]), topic, str(rate))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.long.beside", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def interval(self) -> dict[str, float]:
        """The figures since the last call."""
        return self._ask("go on")

    def end(self) -> dict[str, int]:
        """How many records were acknowledged, and how many of them are missing."""
        self._ask("end")
        return {name: int(value) for name, value in self._line().items()}

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, word: str) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the well-behaved client has ended: see its traceback"
        found: dict[str, float] = json.loads(line)
        return found


if __name__ == "__main__":
    main(*sys.argv[1:])
