"""Loads all that a broker needs, and forks brokers.

usage: python -I -m highwater.cluster.processes.broker_forks SOCKET PAD

Theory of operation.  Most of a broker's start is imports, and brokers that are forks of one process
share the memory of them.  So an agent starts this process first and asks it for each broker of a
new cluster.  It ends when they serve, so that no later start can run old code.  It runs no loop,
has no thread and opens nothing, so that a fork is as good as an exec.

A broker must be the agent's own child, which waits for it and whose death takes it along.  So each
is forked twice: when the one between ends, the kernel gives the broker to the next process above
that takes orphans in, which the agent has asked to be (PR_SET_CHILD_SUBREAPER).  Linux only.

A request is one packet: JSON with `command` (of an exec that would do the same), `cwd`, `env` and
`parent` (the agent's pid), and the descriptor of the output.  The broker answers with its pid.
`ps` shows it with its command in place of this process's, which PAD makes as long.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

MODULE = "highwater.broker"
READY = b"ready"
_LARGEST = 1 << 18
_LOOKS, _LOOK_S = 20_000, 0.0005
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    control = socket.socket(fileno=int(arguments[0]))
    _load()
    control.send(READY)
    while True:
        packet, files, *_ = socket.recv_fds(control, _LARGEST, 1)
        if not packet:
            os._exit(0)  # nothing of it is to be put in order
        asked = json.loads(packet)
        if _forked():
            words = _become(asked, files[0], control)
            from highwater.broker import __main__ as broker

            broker.leave(broker.main(words))
        os.close(files[0])


def _load() -> None:
    """As `highwater.broker.__main__` does; configuration and loop come after the fork."""
    gc.disable()
    import highwater.broker.__main__ as broker
    from highwater.kafka.wire.codecs_only import load_codecs_only

    load_codecs_only()
    broker.prepare_codecs()
    import highwater.base.loop_steps
    import highwater.broker.measure.garbage
    import highwater.broker.server
    import highwater.kafka.config.sources
    import highwater.kafka.security.zookeeper_login
    import highwater.world.real.process  # noqa: F401

    gc.freeze()  # or the first collection would copy all of it


def _forked() -> bool:
    """Whether this is the broker-to-be, which may still have the one between as its parent."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    if os.fork():
        os._exit(0)
    return True


def _become(asked: dict[str, Any], output: int, control: socket.socket) -> list[str]:
    """All that an exec would have made anew; gives the broker's arguments."""
    parent, command = asked["parent"], asked["command"]
    for _ in range(_LOOKS):
        if os.getppid() == parent:
            break
        time.sleep(_LOOK_S)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(file, number)
    os.close(nothing)
    os.close(output)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    from trio._core import _run

    _run._r.seed()  # the loop's own chance, which importing has made; random seeds its own
    _show(command)
    words: list[str] = command[command.index(MODULE) + 1 :]
    sys.argv[1:] = words
    control.send(json.dumps(os.getpid()).encode())
    control.close()
    return words


def _show(command: list[str]) -> None:
    """Puts the command where the kernel reads it for `ps`."""
    stat = Path("/proc/self/stat").read_text()
    begin, end = map(int, stat[stat.rindex(")") + 2 :].split()[45:47])
    room = end - begin
    text = b"".join(word.encode() + b"\0" for word in command)[: room - 1]
    ctypes.memmove(begin, text.ljust(room, b"\0"), room)


if __name__ == "__main__":
    main(sys.argv[1:])
