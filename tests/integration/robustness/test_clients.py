"""Clients that send nonsense, too much, too little, or nothing: one log line each, and others are
served."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from highwater.kafka.wire import messages
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.records import Record, build_batch
from tests.integration.robustness.rig import (
    BrokerProcess,
    ZooKeeper,
    call,
    closed_by_broker,
    connect,
    frame_of,
    leader_of,
    metadata,
    receive,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
IDLE_MS = 700
TOPIC = "served"
BETWEEN_BROKERS = range(4, 8)
"""Without a control plane, and without authorization, any client may act as the controller."""


@pytest.fixture(scope="module")
def broker(
    zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One broker for all of these tests: each must leave it as it was."""
    folder: Path = tmp_path_factory.mktemp("clients")
    made = BrokerProcess(
        folder,
        zookeeper.fresh_path(),
        connections_max_idle_ms=str(IDLE_MS),
        queued_max_requests="16",
    )
    made.serving()
    eventually(
        lambda: leader_of(made.address, TOPIC, create=True) == 1, "the topic", lambda: made.output
    )
    yield made
    code = made.stop()
    made.end()
    assert code == 0
    assert "Traceback" not in made.output, made.output


def told_once(broker: BrokerProcess, sock: socket.socket, *words: str) -> None:
    """Checks that one line in the log names this connection, and contains this text."""
    peer = "{}:{}".format(*sock.getsockname())
    eventually(
        lambda: broker.lines(f"-{peer}-"), "a line on this connection", lambda: broker.output
    )
    [line] = broker.lines(f"-{peer}-")
    for word in words:
        assert word in line, f"{word!r} is not in {line!r}"


def assert_serves(broker: BrokerProcess) -> None:
    assert [b.node_id for b in metadata(broker.address, [TOPIC]).brokers] == [1]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"\x7f\xff\xff\xff" + b"x" * 1000, ("2147483647 bytes", "socket.request.max.bytes=")),
        (b"\xff\xff\xff\xfb", ("-5 bytes",)),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ("not the Kafka protocol", "HTTP")),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ("TLS handshake", "PLAINTEXT")),
        (struct.pack(">i", 4) + b"abcd", ("shorter than a request header",)),
        (struct.pack(">ihhih", 10, 3, 9, 1, 500), ("client id of 500 bytes",)),
        (struct.pack(">ihhihb", 11, 3, 999, 1, -1, 0), ("Metadata v999 is not supported",)),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), ("Unknown(999) v0 is not supported",)),
        (struct.pack(">ihhihb", 41, 0, 9, 1, -1, 0) + b"\xff" * 30, ("a Produce request",)),
        (struct.pack(">ihhih", 40, 3, 9, 1, -1) + b"\xff" * 30, ("varint",)),
    ],
    ids=["2GiB", "negative", "http", "tls", "tiny", "id", "version", "api", "produce", "tags"],
)
def test_nonsense_closes_its_connection_alone(
    broker: BrokerProcess, sent: bytes, words: tuple[str, ...]
) -> None:
    with connect(broker.address) as bad, connect(broker.address) as good:
        bad.sendall(sent)
        assert closed_by_broker(bad)
        told_once(broker, bad, "closing connection", *words)
        good.sendall(frame_of(messages.ApiVersionsRequest(), 0))
        assert receive(good, 8)[4:] == struct.pack(">i", 7)


def test_random_bodies_for_every_api(broker: BrokerProcess) -> None:
    """For any body there is an answer or the end of that connection; never an exception. (The
    fixture looks for tracebacks at its end.)
    """
    chance = random.Random(20)
    offered = call(broker.address, messages.ApiVersionsRequest(), 0).api_keys
    others = [k for k in offered if k.api_key not in BETWEEN_BROKERS]
    for key, version in [(k.api_key, k.max_version) for k in others]:
        for body in (chance.randbytes(chance.randrange(60)), b"\0" * 40, b"\1" * 40, b"\xff" * 40):
            head = request_header(key, version, 1, "chance")
            with connect(broker.address) as sock:
                sock.sendall(struct.pack(">i", len(head + body)) + head + body)
                sock.shutdown(socket.SHUT_WR)
    assert_serves(broker)


def test_a_frame_that_is_cut_short(broker: BrokerProcess) -> None:
    whole = frame_of(messages.MetadataRequest(topics=[]), 7)
    for length in (2, len(whole) - 1):
        with connect(broker.address) as sock:
            sock.sendall(whole[:length])
            sock.shutdown(socket.SHUT_WR)
            assert closed_by_broker(sock)
            told_once(broker, sock, "ended early", "bytes of its request came")
    assert_serves(broker)


def test_a_client_that_announces_much_and_sends_nothing(broker: BrokerProcess) -> None:
    """100 MiB each, from a hundred clients: no memory is set aside, and their time is limited."""
    assert broker.child is not None
    process = psutil.Process(broker.child.pid.pid)
    before = process.memory_info().rss
    socks = []
    for _ in range(100):
        socks.append(connect(broker.address))
        socks[-1].sendall(struct.pack(">i", 100 << 20) + b"x" * 100)
    assert_serves(broker)
    assert process.memory_info().rss - before < 60 << 20
    for sock in socks:
        assert closed_by_broker(sock)
        told_once(broker, sock, f"idle for {IDLE_MS} ms", "100 of 104857600 bytes")
        sock.close()


def test_a_client_that_sends_byte_by_byte(broker: BrokerProcess) -> None:
    """Slow, but whole: it is answered, and so are the others meanwhile."""
    frame = frame_of(messages.ApiVersionsRequest(), 0)
    with connect(broker.address) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame:
            slow.sendall(bytes([byte]))
            assert_serves(broker)
        assert receive(slow, 8)[4:] == struct.pack(">i", 7)


def test_a_client_that_does_not_fetch_its_answer(broker: BrokerProcess) -> None:
    """Its answer is larger than the room in the sockets: it holds up no other client, and is closed
    in time."""
    for _ in range(12):
        batch = bytes(build_batch([Record(None, os.urandom(1 << 19))]))
        produce(broker, batch)
    with connect(broker.address) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(frame_of(fetch(), 4))
        eventually(
            lambda: broker.lines("its answer is not fetched"), "closed", lambda: broker.output
        )
        told_once(broker, sock, f"idle for {IDLE_MS} ms", "its answer is not fetched")
        assert_serves(broker)
    answer = call(broker.address, fetch(), 4)
    assert len(answer.responses[0].partitions[0].records) > 6 << 20


def fetch() -> messages.FetchRequest:
    request = messages.FetchRequest
    partition = request.FetchTopic.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=50 << 20
    )
    return request(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, isolation_level=0,
        topics=[request.FetchTopic(topic=TOPIC, partitions=[partition])],
    )  # fmt: skip


def produce(broker: BrokerProcess, batch: bytes) -> None:
    request = messages.ProduceRequest
    data = request.TopicProduceData
    answer = call(
        broker.address,
        request(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[
                data(
                    name=TOPIC,
                    partition_data=[data.PartitionProduceData(index=0, records=batch)],
                )
            ],
        ),
        3,
    )
    assert answer.responses[0].partition_responses[0].error_code == 0
