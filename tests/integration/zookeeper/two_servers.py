"""Our server as a process, and Java's, for tests that put the same questions to both."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from highwater.child_processes import Child
from highwater.cluster.ports import free_ports
from tests.integration.robustness.rig import JavasZooKeeper
from tests.waiting import eventually

Address = tuple[str, int]
TICK_MS = 500


class Server:
    """The process; its folder outlives it."""

    def __init__(self, folder: Path, *options: str, shell: str = "") -> None:
        """`shell` has words of a shell's before the command: a limit, for one."""
        self.folder, self.port, self.options = folder, free_ports(1)[0], options
        self._shell = shell
        self.start()

    @property
    def address(self) -> Address:
        return "127.0.0.1", self.port

    def start(self) -> None:
        command = [sys.executable, "-m", "highwater.zookeeper", "--data", str(self.folder / "data")]
        command += ["--port", str(self.port), "--tick", str(TICK_MS), *self.options]
        if self._shell:
            command = ["sh", "-c", f'{self._shell} && exec "$@"', "sh", *command]
        output = self.folder / "output.log"
        self.child = Child("zookeeper", command, output=output, cwd=Path.cwd())
        eventually(self._serves, "it serves", self.child.new_output)

    def _serves(self) -> bool:
        assert self.child.running, self.child.new_output()
        return "serves" in self.child.new_output()

    def kill(self) -> None:
        self.child.signal(signal.SIGKILL)
        self.child.wait(30)


@contextmanager
def server(folder: Path, *options: str, shell: str = "") -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    made = Server(folder, *options, shell=shell)
    try:
        yield made
    finally:
        made.kill()


@contextmanager
def java(folder: Path, settings: dict[str, str] | None = None) -> Iterator[Address]:
    """With these settings of its zoo.cfg in place of those that a cluster's has."""
    made = _Java(folder, settings or {})
    try:
        yield "127.0.0.1", made.port
    finally:
        made.end()


class _Java(JavasZooKeeper):
    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._settings = settings
        super().__init__(folder)

    def prepared(self) -> list[str]:
        command, config = super().prepared(), self.folder / "zoo.cfg"
        kept = [
            line for line in config.read_text().splitlines()
            if line.partition("=")[0] not in self._settings
        ]  # fmt: skip
        kept += [f"{name}={value}" for name, value in self._settings.items()]
        config.write_text("".join(f"{line}\n" for line in kept))
        return command


def exchange(address: Address, *sent: bytes, within_s: float = 10.0) -> bytes:
    """What comes until the server closes the connection."""
    with socket.create_connection(address, within_s) as asked:
        got = b""
        try:
            for data in sent:
                asked.sendall(data)
            while more := asked.recv(65536):
                got += more
        except ConnectionError:
            pass
        return got
