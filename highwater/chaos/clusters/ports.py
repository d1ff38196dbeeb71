"""Ports on 127.0.0.1: free ones for runs, checked ones for `up`.

Free ports are taken below 32768: above it the kernel hands out ports to outgoing connections, and a
broker that is restarted on "its" port may find a client's socket there.  A socket with SO_REUSEADDR
is bound for the check as a broker would bind it, so that a port in TIME_WAIT counts as free.
"""

from __future__ import annotations

import os
import socket

LOW, HIGH = 20000, 32000
_last_given: int | None = None


class PortInUse(Exception):
    """One clear line: which port, for what, and what to do."""


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


def free_ports(count: int) -> list[int]:
    """Distinct ports that are free now.

    The search starts at a place of this process's own, and goes on from there: clients of a cluster
    that is gone may still try its ports, and must not find the next cluster there.
    """
    global _last_given
    found: list[int] = []
    port = LOW + (os.getpid() * 37) % (HIGH - LOW) if _last_given is None else _last_given
    for _ in range(HIGH - LOW):
        if len(found) == count:
            break
        port = port + 1 if port + 1 < HIGH else LOW
        if is_free(port):
            found.append(port)
    else:
        raise PortInUse(f"no {count} free ports between {LOW} and {HIGH} on 127.0.0.1")
    _last_given = port
    return found
