"""The server stood still for longer than a session lasts, and its client went on with its pings.

Java's server races there: its thread that ends sessions against those that read the sockets.  In 53
of 55 pauses of 2.5 s the session (of 1 s) was over, and in 2 it lived on; ours ends it always.
"""

from __future__ import annotations

import signal
import struct
import time
from functools import partial
from pathlib import Path

import pytest

from highwater.zookeeper import jute
from highwater.zookeeper.jute import Type
from tests.integration.zookeeper.raw_client import Raw, create, path_and
from tests.integration.zookeeper.two_servers import server
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


PING = jute.frame(struct.pack(">ii", jute.PING_XID, Type.PING))


def past(until: float) -> bool:
    return time.monotonic() > until


def test_pings_in_the_buffer_do_not_save_a_session(tmp_path: Path) -> None:
    with server(tmp_path) as zk:
        for pause in range(3):
            raws = [Raw(zk.address, 1000) for _ in range(4)]
            for number, raw in enumerate(raws):
                assert raw.connect()
                assert raw.negotiated == 1000
                path = f"/{pause}-{number}"
                assert raw.ask(Type.CREATE, create(path, b"", 1)) == (0, path)
            zk.child.signal(signal.SIGSTOP)
            until = time.monotonic() + 1.6
            eventually(lambda: zk.child.paused, "it stands still")
            for raw in raws:
                raw.send(PING * 3)
            over = partial(past, until)
            eventually(over, "the sessions' time is over")
            zk.child.signal(signal.SIGCONT)
            for raw in raws:
                assert raw.rest(PING) == b"", "no answer, and the end of the connection"
                assert not raw.connect(), "the session is over"
            other = Raw(zk.address)
            assert other.connect()
            for number in range(len(raws)):
                assert other.ask(Type.EXISTS, path_and(f"/{pause}-{number}", b"\0"))[0] == -101
            other.drop()


def test_a_pause_that_is_shorter_than_a_session_ends_none(tmp_path: Path) -> None:
    with server(tmp_path) as zk:
        raw = Raw(zk.address, 10_000)
        assert raw.connect()
        zk.child.signal(signal.SIGSTOP)
        until = time.monotonic() + 1.6
        eventually(lambda: time.monotonic() > until, "it stood still for longer than a tick")
        zk.child.signal(signal.SIGCONT)
        assert raw.ask(Type.PING, b"", jute.PING_XID)[0] == 0
