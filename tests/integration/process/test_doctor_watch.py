"""`highwater doctor --watch` between two real clients and a real cluster."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer

from highwater.cluster.leader_moves import addresses
from tests.background import BackgroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
TOLD_S = 60


@contextmanager
def watching(bootstrap: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address for clients; and what was found, once the block has ended."""
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "doctor", "--watch", "--json"]
    found: dict[str, Any] = {}
    with subprocess.Popen(
        [*command, f"--bootstrap={bootstrap}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        timer = threading.Timer(TOLD_S, process.kill)
        timer.start()
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("connect the client to "):
                break
        timer.cancel()
        assert lines[-1].startswith("connect the client to "), lines
        try:
            yield lines[-1].split()[4], found
        except BaseException:
            process.kill()
            raise
        process.send_signal(signal.SIGINT)
        found |= json.loads(process.communicate(timeout=TOLD_S)[0])
        assert process.returncode == 1


def test_two_clients_are_known_by_what_they_ask(background: BackgroundCluster) -> None:
    background.create_topic("orders")
    with watching(background.cluster.direct_bootstrap) as (bootstrap, found):
        assert not set(addresses(bootstrap)) & set(addresses(background.bootstrap_servers))
        producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": 1, "compression.type": "lz4",
             "client.id": "writer"}
        )  # fmt: skip
        for number in range(30):
            producer.produce("orders", str(number) * 50, partition=0)
        assert producer.flush(60) == 0
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="g", client_id="reader",
            isolation_level="read_committed", auto_offset_reset="earliest", session_timeout_ms=9000,
            consumer_timeout_ms=30_000,
        )  # fmt: skip
        assert len([record for _, record in zip(range(30), consumer, strict=False)]) == 30
        consumer.close()
        with pytest.raises((OSError, ssl.SSLError)):
            ssl.get_server_certificate(addresses(bootstrap)[0], timeout=20)
    writer, reader = (
        next(c for c in found["clients"] if c["client.id"] == name) for name in ("writer", "reader")
    )
    assert writer["software"].startswith("confluent-kafka-python")
    assert writer["roles"] == ["producer"]
    seen = {"acks": ["1"], "enable.idempotence": ["false"], "compression.type": ["lz4"]}
    assert seen.items() <= writer["settings"].items()
    assert {"acks=1", "enable.idempotence=false"} <= {f["what"] for f in writer["findings"]}
    assert reader["software"].startswith("kafka-python")
    seen = {
        "group.id": ["g"], "group.protocol": ["classic"], "session.timeout.ms": ["9000"],
        "isolation.level": ["read_committed"],
    }  # fmt: skip
    assert seen.items() <= reader["settings"].items()
    assert reader["findings"] == []
    why = [finding["why"] for finding in found["connection"]]
    assert why == ["The client speaks TLS, and the listener does not."]
