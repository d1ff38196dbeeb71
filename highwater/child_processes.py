"""Child processes that never outlive their supervisor, and pids that are never mistaken for another
process.

Theory of operation.  A supervisor (`highwater up`, `highwater chaos`, a pytest session) starts
every process of a cluster itself, from its main thread, each in a session of its own.  So Ctrl-C in
a terminal reaches only the supervisor, which then stops the cluster in order.  Where the supervisor
is killed:

* Linux: each child asked the kernel for SIGKILL on its parent's death (PR_SET_PDEATHSIG).  The
  kernel means the *thread* that forked, hence "from its main thread".
* elsewhere: a watchdog process reads a pipe from the supervisor; when the pipe ends, it kills the
  processes that the state file lists.

A pid is written down with the start time of its process, and every signal by pid first checks both,
because pids are reused and `highwater down` must never kill a stranger.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

_PR_SET_PDEATHSIG = 1
_LINUX = platform.system() == "Linux"
_ZOMBIE, _STOPPED = "Z", "T"
_libc: Any = ctypes.CDLL(None, use_errno=True) if _LINUX else None


class StartError(Exception):
    """A member of the cluster could not be started; one clear line."""


@dataclass(frozen=True, slots=True)
class Pid:
    """A process: its number and its start time."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Pid:
        return cls(pid, _seen(pid)[0])

    def alive(self) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        started, state = _seen(self.pid)
        return bool(started) and started == self.started and state != _ZOMBIE

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal if exactly this process still runs."""
        if not self.alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def stopped(self) -> bool:
        """Whether exactly this process stands still, by SIGSTOP."""
        started, state = _seen(self.pid)
        return bool(started) and started == self.started and state == _STOPPED

    def end(self, grace_s: float) -> bool:
        """SIGTERM, and SIGKILL where it still runs after `grace_s`; True if SIGTERM was enough."""
        if not self.signal(signal.SIGTERM):
            return True
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            if not self.alive():
                return True
            time.sleep(0.02)
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        return False

    def as_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Pid:
        return cls(int(raw["pid"]), str(raw["started"]))


def _seen(pid: int) -> tuple[str, str]:
    """A process's start time, as text to compare, and its state, as Linux has it; both are empty
    where there is no such process."""
    if _LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return "", ""
        state, *further = stat[stat.rindex(")") + 2 :].split()
        return further[18], state  # field 22: clock ticks since boot
    import psutil  # late: a start of a cluster waits for this module's imports

    states = {psutil.STATUS_ZOMBIE: _ZOMBIE, psutil.STATUS_STOPPED: _STOPPED}
    try:
        process = psutil.Process(pid)
        return f"{process.create_time():.2f}", states.get(process.status(), "")
    except psutil.Error:
        return "", ""


def take_lock(folder: Path) -> IO[str]:
    """Takes a cluster folder's lock, which ends with this process; StartError if it is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StartError(
            f"a cluster is running in {folder}: `highwater down --dir {folder}` stops it"
        ) from None
    return lock


class Process(Protocol):
    """What is used of Popen."""

    pid: int

    @property
    def returncode(self) -> int | Any: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: Any, /) -> None: ...


class Forked(Process, Protocol):
    """A child that another process has made for this one (`forked_members`)."""

    output_start: int
    """The size of its output before it began."""


class Child:
    """A process that this supervisor started: its output goes to a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        output: Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        forked: Forked | None = None,
    ) -> None:
        """`forked`: it runs already, with this output, and is not to be started."""
        self.name = name
        self.output = output
        self._parent = os.getpid()
        if forked is not None:
            self._output_start = forked.output_start
        else:
            self._output_start = output.stat().st_size if output.exists() else 0
        with output.open("ab") as sink:
            try:
                self.popen: Process = forked or subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=dict(env) if env is not None else None,
                    start_new_session=True,
                    preexec_fn=self._die_with_parent if _libc is not None else None,
                )
            except OSError as error:
                raise StartError(f"{name} cannot be started: {command[0]}: {error}") from error
        self.pid = Pid.of(self.popen.pid)

    def _die_with_parent(self) -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._parent:
            os._exit(1)

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    @property
    def paused(self) -> bool:
        return self.pid.stopped()

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            self.popen.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None where it still runs after the time."""
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def new_output(self) -> str:
        """Its output since its start."""
        with self.output.open("rb") as file:
            file.seek(self._output_start)
            return file.read().decode(errors="replace")

    def last_words(self) -> str:
        """The line that tells why it ended: the last one that is not blank."""
        lines = [line.strip() for line in self.new_output().splitlines() if line.strip()]
        return lines[-1] if lines else "it printed nothing"


class Watchdog:
    """Kills the processes of a state file when its parent is gone; needed only where there is no
    PDEATHSIG."""

    def __init__(self, state_file: Path) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        if _libc is None:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-m", __name__, str(state_file)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def close(self) -> None:
        if self._popen is not None and self._popen.stdin is not None:
            self._popen.stdin.close()
            self._popen.wait(10)


def kill_listed(state_file: Path) -> None:
    """Sends SIGKILL to every process in the state file that is still the same one."""
    try:
        state = json.loads(state_file.read_text())
    except (OSError, ValueError):
        return
    for raw in state.get("processes", {}).values():
        pid = Pid.from_json(raw)
        pid.signal(signal.SIGCONT)
        pid.signal(signal.SIGKILL)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_listed(Path(sys.argv[1]))
