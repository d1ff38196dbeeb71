"""Loads all that a broker and the embedded ZooKeeper need, and forks them.

usage: python -I -m highwater.cluster.processes.member_forks SOCKET SOCKET PAD

Theory of operation.  A member's start is mostly imports, and members that are forks of one process
share the imported code's memory.  So an agent starts this process first and requests each member of
a new cluster from it.  The process ends when the members serve, so that no later start can run old
code.  It runs no loop, has no thread and opens nothing, so that a fork is as good as an exec.

ZooKeeper is forked by a process that has not loaded the brokers' code.  Otherwise ZooKeeper would
keep the original of each page that all brokers have written to, and so copied, though nobody uses
it.  That process is itself a fork of this one, made before this one loads the brokers' code, so
what both need is loaded and kept once.

A member must be the agent's own child: the agent waits for it, and the agent's death kills it.  So
each is forked twice: when the process between ends, the kernel gives the member to the nearest
ancestor that adopts orphans, which the agent has asked to do (PR_SET_CHILD_SUBREAPER).  Linux only.

The first SOCKET is for ZooKeeper, the second for brokers.  A request is one packet: JSON with
`command` (of an exec that would do the same), `cwd`, `env` and `parent` (the agent's pid), and the
descriptor of the output.  The member answers with its pid; if the agent did not become its parent,
it answers with null and ends.  `ps` shows the member's command in place of this process's, which
PAD makes long enough.
"""

from __future__ import annotations

import codecs
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

READY = b"ready"
_LARGEST = 1 << 18
_LOOK_S = 0.0005
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    zookeepers, brokers = (socket.socket(fileno=int(number)) for number in arguments[:2])
    gc.disable()  # until a member runs: imports make no garbage worth collecting
    _load_zookeeper()
    other = os.fork()
    if not other:
        brokers.close()
        _serve(zookeepers, _run_zookeeper)
        os._exit(0)  # it has nothing to clean up
    zookeepers.close()
    _load_broker()
    _serve(brokers, _run_broker)
    os.waitpid(other, 0)  # else it would be left to the agent
    os._exit(0)


def _load_zookeeper() -> None:
    import highwater.zookeeper.__main__  # noqa: F401

    gc.freeze()  # else a member's first collection would write to, and so copy, all pages


def _load_broker() -> None:
    """Imports what `highwater.broker.__main__` does; a member reads its configuration and runs its
    loop after the fork."""
    import highwater.broker.__main__ as broker
    from highwater.kafka.wire.codecs_only import load_codecs_only

    load_codecs_only()
    broker.prepare_codecs()
    codecs.lookup("idna")  # Python's sockets encode every host name with it
    import highwater.base.loop_steps
    import highwater.broker.measure.garbage
    import highwater.broker.server
    import highwater.kafka.config.sources
    import highwater.kafka.security.zookeeper_login
    import highwater.world.real.borrowed_sockets
    import highwater.world.real.fault_door
    import highwater.world.real.process  # noqa: F401

    gc.freeze()


def _run_zookeeper(arguments: list[str]) -> NoReturn:
    from highwater.zookeeper.__main__ import main

    sys.exit(main(arguments))


def _run_broker(arguments: list[str]) -> NoReturn:
    from highwater.broker.__main__ import leave, main

    leave(main(arguments))


def _serve(control: socket.socket, run: Callable[[list[str]], NoReturn]) -> None:
    """Answers requests until the agent closes the socket."""
    control.send(READY)
    while True:
        packet, files, *_ = socket.recv_fds(control, _LARGEST, 1)
        if not packet:
            return
        asked = json.loads(packet)
        if between := _forked():
            run(_become(asked, files[0], control, between))
        os.close(files[0])


def _forked() -> int:
    """Forks twice.  In the new member it returns the pid of the process between, which may still be
    its parent; in the caller, 0."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return 0
    between = os.getpid()
    if os.fork():
        os._exit(0)
    return between


def _become(asked: dict[str, Any], output: int, control: socket.socket, between: int) -> list[str]:
    """Sets everything that an exec would have set afresh; returns the member's arguments."""
    parent, command = asked["parent"], asked["command"]
    while os.getppid() == between:
        time.sleep(_LOOK_S)  # the process between is about to end
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        control.send(b"null")
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

    _run._r.seed()  # trio's random numbers, seeded at import; `random` reseeds itself after a fork
    _show(command)
    arguments: list[str] = command[command.index("-m") + 2 :]
    sys.argv[1:] = arguments
    gc.enable()
    control.send(json.dumps(os.getpid()).encode())
    control.close()
    return arguments


def _show(command: list[str]) -> None:
    """Writes the command to where the kernel reads it for `ps`."""
    stat = Path("/proc/self/stat").read_text()
    begin, end = map(int, stat[stat.rindex(")") + 2 :].split()[45:47])
    room = end - begin
    text = b"".join(word.encode() + b"\0" for word in command)[: room - 1]
    ctypes.memmove(begin, text.ljust(room, b"\0"), room)


if __name__ == "__main__":
    main(sys.argv[1:])
