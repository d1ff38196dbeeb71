"""Starts the members of a new cluster as forks of one process that has loaded their code.

`begin` starts that process (`member_forks`) early, so that it loads its code while the agent loads
its own; later the agent's cluster takes it over.  Members are started by exec where the process
has ended or cannot be used, as on macOS or when coverage is measured from each process's start.

This module imports little, because the other process shall begin to load before the agent does.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from highwater.cluster.processes.programs import Highwater
from highwater.cluster.processes.zookeeper_choice import EMBEDDED
from highwater.cluster.processes.zookeeper_process import start_of

_PR_SET_CHILD_SUBREAPER = 36
_READY_S = 30.0
_END_S = 2.0
_MODULE = "highwater.cluster.processes.member_forks"
_begun: list[Forks] = []


class Forked:
    """A child that another process has forked for this one; it has those methods of Popen that
    `Child` uses."""

    def __init__(self, pid: int, output_start: int) -> None:
        self.pid = pid
        self.output_start = output_start
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.005)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Mother:
    """A process that forks members of one kind."""

    def __init__(self, control: socket.socket) -> None:
        self._socket = control
        control.settimeout(_READY_S)

    def ready(self) -> bool:
        """Waits until the process has loaded everything; False if it has ended instead."""
        try:
            return bool(self._socket.recv(64))
        except OSError:
            return False

    def fork(
        self, command: Sequence[str], output: Path, cwd: Path, env: Mapping[str, str]
    ) -> Forked | None:
        """Forks a member that runs this command; None if the process cannot, or has ended."""
        asked = {"command": list(command), "cwd": str(cwd), "env": dict(env)}
        packet = json.dumps({**asked, "parent": os.getpid()}).encode()
        with output.open("ab") as sink:
            start = sink.tell()
            try:
                socket.send_fds(self._socket, [packet], [sink.fileno()])
                answer = self._socket.recv(64)
            except OSError:
                return None
        pid = json.loads(answer or b"null")
        return None if pid is None else Forked(pid, start)

    def close(self) -> None:
        """Ends the process; its members live on."""
        self._socket.close()


class Forks:
    """The processes that fork members."""

    def __init__(self, *likely: Sequence[str]) -> None:
        """`likely`: commands that members will have; `ps` has room for the longest of them."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        self.zookeeper, self.brokers = (Mother(ours) for ours, _ in pairs)
        numbers = [theirs.fileno() for _, theirs in pairs]
        optimized = ["-O"] * bool(sys.flags.optimize)
        command = [sys.executable, *optimized, "-I", "-m", _MODULE, *map(str, numbers), ""]
        command[-1] = "-" * (max(len(_shown(one)) for one in likely) - len(_shown(command)))
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=numbers,
            start_new_session=True,
        )
        for _, theirs in pairs:
            theirs.close()

    def close(self) -> None:
        """Ends these processes; their members live on."""
        self.zookeeper.close()
        self.brokers.close()
        try:
            self._popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


def _shown(command: Sequence[str]) -> bytes:
    return b"".join(word.encode() + b"\0" for word in command)


def begin(program: str, runtime: str, folder: Path, profile: str) -> None:
    """Starts to load the code of the cluster that this process is about to start in `folder`."""
    possible = platform.system() == "Linux" and "COVERAGE_PROCESS_START" not in os.environ
    if possible and (program, runtime) == ("highwater", "process"):
        properties = folder / "broker-1" / "server.properties"
        zookeeper = start_of(EMBEDDED, folder / "zookeeper", 65535, 2000, sync=True)
        _begun.append(Forks(Highwater().command(properties, profile), zookeeper))


def taken() -> Forks | None:
    return _begun.pop() if _begun else None
