"""A broker that cannot start: one clear line, exit code 1 (2 for bad configuration), no damage."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.robustness.rig import (
    BrokerProcess,
    ZooKeeper,
    assert_one_line,
    closed_by_broker,
    connect,
    leader_of,
    metadata,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
Brokers = Callable[..., BrokerProcess]
NOWHERE = "127.0.0.1:1"
"""An address with no ZooKeeper, nor anything else."""


def test_a_port_in_use(brokers: Brokers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = brokers(NOWHERE, listeners=f"PLAINTEXT://127.0.0.1:{port}").start()
        assert_one_line(broker, 1, "listener PLAINTEXT", f"127.0.0.1:{port}", "in use", "listeners")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"listeners": "here"}, ("listeners=here", "not a listener", "NAME://host:port")),
        ({"zookeeper_connect": "localhost:zk"}, ("zookeeper.connect=localhost:zk", "host:port")),
        ({"super_users": "a"}, ("super.users=a", "'a' is not TYPE:NAME", "write User:a")),
        ({"password_encoder_secret": "hunter2"}, ("=[hidden]", "passwords", "remove it")),
        ({"listener_name_x_ssl_client_auth": "all"}, ("ssl.client.auth=all", "use one of")),
    ],
)
def test_bad_configuration(
    brokers: Brokers, properties: dict[str, str], words: tuple[str, ...]
) -> None:
    broker = brokers(NOWHERE)
    broker.properties |= {name.replace("_", "."): value for name, value in properties.items()}
    assert_one_line(broker.start(), 2, *words)
    assert broker.output.count("\n") == 1


def test_no_zookeeper(brokers: Brokers) -> None:
    broker = brokers(NOWHERE, zookeeper_connection_timeout_ms="500").start()
    assert_one_line(broker, 1, "ZooKeeper at 127.0.0.1:1 does not answer", "zookeeper.connect")
    assert not os.path.exists(broker.properties["log.dirs"])


def test_a_zookeeper_that_says_nothing_and_sigterm_meanwhile(brokers: Brokers) -> None:
    """It waits as long as it may, and stops at once on SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        broker = brokers(f"127.0.0.1:{mute.getsockname()[1]}").start()
        mute.settimeout(20)
        with mute.accept()[0]:
            broker.signal(signal.SIGTERM)
            assert broker.ended(10) == 0, broker.output
    assert "Traceback" not in broker.output


def test_sigterm_before_anything_is_loaded(brokers: Brokers) -> None:
    """At any moment the end is no error, and leaves nothing in ZooKeeper's way."""
    broker = brokers(NOWHERE).start()
    cmdline = Path(f"/proc/{broker.child.pid.pid}/cmdline") if broker.child else Path()
    eventually(lambda: b"broker" in cmdline.read_bytes(), "python was started", lambda: "")
    broker.signal(signal.SIGTERM)
    assert broker.ended(10) in (0, -signal.SIGTERM)
    assert "Traceback" not in broker.output


def test_two_brokers_with_one_id(zookeeper: ZooKeeper, brokers: Brokers) -> None:
    path = zookeeper.fresh_path()
    first = brokers(path).serving()
    second = brokers(path).start()
    at = f"127.0.0.1:{first.port}"
    assert_one_line(second, 1, "broker.id 1 is registered by " + at, "another broker.id")
    assert [b.port for b in metadata(first.address, []).brokers] == [first.port]


def test_two_processes_on_one_log_directory(zookeeper: ZooKeeper, brokers: Brokers) -> None:
    path = zookeeper.fresh_path()
    first = brokers(path).serving()
    folder = first.properties["log.dirs"]
    second = brokers(path, 2, log_dirs=folder).start()
    assert_one_line(second, 1, folder, "in use by another process", "another log.dirs")
    assert [b.node_id for b in metadata(first.address, []).brokers] == [1]


def test_the_log_directory_of_another_broker(zookeeper: ZooKeeper, brokers: Brokers) -> None:
    path = zookeeper.fresh_path()
    first = brokers(path).serving()
    assert first.stop() == 0
    folder = first.properties["log.dirs"]
    second = brokers(path, 2, log_dirs=folder).start()
    assert_one_line(second, 1, folder, "belongs to broker.id 1", "set broker.id=1")
    assert first.serving().running


def test_the_wrong_zookeeper(zookeeper: ZooKeeper, brokers: Brokers) -> None:
    """ZooKeeper is another cluster's, or empty: the start is refused, nothing is written there, and
    nothing is lost here."""
    right, other = zookeeper.fresh_path(), zookeeper.fresh_path()
    broker = brokers(right).serving()
    eventually(
        lambda: leader_of(broker.address, "kept", create=True) == 1,
        "the topic is there",
        lambda: broker.output,
    )
    assert broker.stop() == 0
    folder = broker.properties["log.dirs"]
    broker.properties["zookeeper.connect"] = other
    for there in ("leads to no cluster", "leads to cluster "):
        broker.start()
        words = (folder, "belongs to cluster", there, "correct zookeeper.connect")
        assert_one_line(broker, 1, *words)
        if there == "leads to no cluster":
            assert brokers(other, 2).serving().stop() == 0  # which could found a cluster there
    broker.properties["zookeeper.connect"] = right
    broker.serving()
    eventually(
        lambda: leader_of(broker.address, "kept") == 1,
        "the topic is there as before",
        lambda: broker.output,
    )


def test_log_directories_that_cannot_be_used(zookeeper: ZooKeeper, brokers: Brokers) -> None:
    """One of two is a file: the broker goes on with the other.  Both are: it ends."""
    broker = brokers(zookeeper.fresh_path())
    file, good = broker.folder / "a-file", broker.folder / "good"
    file.write_text("in the way")
    broker.properties["log.dirs"] = f"{file},{good}"
    broker.serving()
    assert len(broker.lines(f"log directory {file} is offline")) == 1
    assert broker.stop() == 0
    broker.properties["log.dirs"] = str(file)
    assert_one_line(broker.start(), 1, "no log directory is left", str(file), "restart the broker")
    assert file.read_text() == "in the way"


def up(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "highwater.cli.main", "up", "--dir", str(folder)]
    env = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | environment
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=120, env=env, check=False
    )


def test_up_on_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = up(tmp_path / "cluster", "--brokers", "1", "--port", str(port))
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert f"port {port}" in line
        assert "in use" in line
        client = connect(("127.0.0.1", port))
        other.accept()[0].close()
        assert closed_by_broker(client)
