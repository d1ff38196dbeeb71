"""Ports on 127.0.0.1: free ones for runs, checked ones for `up`.

Free ports are taken below 32768, because the kernel hands out higher ports to outgoing connections,
and a broker that is restarted on "its" port may find a client's socket there.  For the check a
socket with SO_REUSEADDR is bound as a broker would bind it, so that a port in TIME_WAIT counts as
free.

A port whose broker is down for a moment looks free.  Runs side by side therefore need ranges of
their own: the setting HIGHWATER_PORTS (such as 20000-26000), which a run's processes inherit.
Clusters on ports given by the user hold a lock on each while they run.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from highwater.child_processes import StartError
from highwater.cluster.port_shares import HIGH, LOW, SETTING

_last_given: int | None = None


class PortInUse(Exception):
    """A port is taken; the message is one clear line with the port, its use, and the remedy."""


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(1)
        except OSError:
            return False
    return True


def require_free(port: int, what: str, remedy: str) -> None:
    if not is_free(port):
        raise PortInUse(f"port {port} ({what}) is in use on 127.0.0.1: {remedy}")


@contextmanager
def claimed(ports: Sequence[int], folder: Path) -> Iterator[None]:
    """Claims these ports for the cluster in `folder`, until the block or this process ends.

    Between the check of a port and a broker's bind, another cluster of this user could make the
    same check.  Raises PortInUse with that cluster's folder.
    """
    with ExitStack() as claims:
        for port in ports:
            claims.enter_context(_claim(port, folder))
        yield


@contextmanager
def _claim(port: int, folder: Path) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / f"highwater-{os.getuid()}-port-{port}.lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "r+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = lock.read().strip()  # the other's folder; empty until it has written that
            who = f"the cluster in {other}" if other else "another cluster that is starting"
            remedy = f"stop it (highwater down --dir {other})" if other else "stop it"
            raise PortInUse(
                f"port {port} (a broker's port) is taken by {who}: {remedy}, or give another --port"
            ) from None
        lock.truncate(0)
        lock.write(f"{folder}\n")
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def port_range(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """The first usable port, and the one after the last.  Raises StartError."""
    if not (setting := environment.get(SETTING)):
        return LOW, HIGH
    first, _, end = setting.partition("-")
    if not (first.isdecimal() and end.isdecimal() and 1024 <= int(first) < int(end) <= 65536):
        raise StartError(f"{SETTING} is {setting!r}: set it to FIRST-END, such as {LOW}-{HIGH}")
    return int(first), int(end)


def free_ports(count: int, without: Collection[int] = ()) -> list[int]:
    """Distinct ports that are free now, and not in `without`.

    The search starts at a port that differs from process to process, and each call goes on where
    the last one ended: clients of an ended cluster may still try its ports, and must not find the
    next cluster there.
    """
    global _last_given
    low, high = port_range()
    found: list[int] = []
    port = low + (os.getpid() * 37) % (high - low) if _last_given is None else _last_given
    for _ in range(high - low):
        if len(found) == count:
            break
        port = port + 1 if low <= port + 1 < high else low
        if port not in without and is_free(port):
            found.append(port)
    else:
        raise PortInUse(f"no {count} free ports between {low} and {high} on 127.0.0.1")
    _last_given = port
    return found


def listens(port: int) -> bool:
    """Whether something takes connections at this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
