"""The page of metrics and the two health pages, on a broker's own port."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from tests.integration.robustness.rig import (
    BrokerProcess,
    ZooKeeper,
    assert_one_line,
    fresh_port,
    leader_of,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text; 0 if there is no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_metrics_and_health(zookeeper: ZooKeeper, brokers: Callable[..., BrokerProcess]) -> None:
    port = fresh_port()
    broker = brokers(zookeeper.fresh_path(), highwater_metrics_port=str(port)).serving()
    assert get(port, "/healthz")[0] == 200
    eventually(lambda: get(port, "/readyz")[0] == 200, "it is ready", lambda: broker.output)
    assert get(port, "/elsewhere")[0] == 404
    eventually(
        lambda: leader_of(broker.address, "measured", create=True) == 1,
        "a topic",
        lambda: broker.output,
    )
    status, page = get(port, "/metrics")
    assert status == 200
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(found["kafka_server_replicamanager_partitioncount"]) == 1
    assert any('request="Metadata"' in name for name in found), page
    assert broker.stop() == 0


def test_alive_and_not_ready(brokers: Callable[..., BrokerProcess]) -> None:
    """As long as it waits for ZooKeeper, it is alive, and serves no client."""
    port = fresh_port()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        connect = f"127.0.0.1:{mute.getsockname()[1]}"
        broker = brokers(connect, highwater_metrics_port=str(port)).start()
        eventually(lambda: get(port, "/healthz")[0] == 200, "it lives", lambda: broker.output)
        assert get(port, "/readyz")[0] == 503
        broker.signal(signal.SIGTERM)
        assert broker.ended() == 0


def test_the_metrics_port_in_use(brokers: Callable[..., BrokerProcess]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        broker = brokers("127.0.0.1:1", highwater_metrics_port=port).start()
        assert_one_line(broker, 1, f"highwater.metrics.port={port}", "in use", "-1 for none")
