"""One ZooKeeper, started by $ZOOKEEPER_COMMAND, where kazoo's harness starts an ensemble of three.

`python_suites.py` puts this file where the conftest.py of kazoo's tests stands.  The server's
folder stays from test to test, as it does there; a test that stops it starts it again.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from kazoo.testing import harness

START_S = 30.0


class Server:
    """What the tests use of kazoo's ManagedZooKeeper."""

    def __init__(self) -> None:
        self._port = int(os.environ["ZOOKEEPER_PORT"])
        self.address = self.secure_address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self) -> None:
        if self.running:
            return
        with open(os.environ["ZOOKEEPER_OUTPUT"], "ab") as output:
            self._process = subprocess.Popen(
                shlex.split(os.environ["ZOOKEEPER_COMMAND"]), stdout=output, stderr=output
            )
        deadline = time.monotonic() + START_S
        while not self._serves():
            assert self._process.poll() is None, "ZooKeeper has ended"
            assert time.monotonic() < deadline, "ZooKeeper does not answer"
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as asked:
                asked.sendall(b"ruok")
                return asked.recv(4) == b"imok"
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)


class Cluster:
    """What the tests use of kazoo's ZookeeperCluster."""

    def __init__(self) -> None:
        self._servers = [Server()]

    def __getitem__(self, number: int) -> Server:
        return self._servers[number]

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    def start(self) -> None:
        for server in self._servers:
            server.run()

    def stop(self) -> None:
        for server in self._servers:
            server.stop()

    def terminate(self) -> None:
        """After each class of tests; this server goes on, since a start of Java's takes seconds."""


@pytest.fixture(scope="session", autouse=True)
def one_server() -> Iterator[None]:
    cluster = Cluster()
    harness.get_global_cluster = lambda: cluster
    yield
    cluster.stop()
