"""kill -9 of the server under load, at moments of chance: what was answered is there afterwards."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highwater.zookeeper import jute
from highwater.zookeeper.jute import Type
from tests.integration.zookeeper.raw_client import Raw, create, multi, path_and
from tests.integration.zookeeper.two_servers import server
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
KILLS = 12
WINDOW = 50
"""Of the znodes that are kept."""


def change(number: int) -> bytes:
    """A multi: the counter is set, a znode made, and an earlier one deleted."""
    parts: list[tuple[int, bytes]] = [
        (Type.SET_DATA, path_and("/n", jute.buffer(b"%d" % number), jute.number(-1))),
        (Type.CREATE, create(f"/s/{number}", b"", 0)),
    ]
    if number > WINDOW:
        parts.append((Type.DELETE, path_and(f"/s/{number - WINDOW}", jute.number(-1))))
    return multi(parts)


def killed(folder: Path, kills: int, seed: int, longest_s: float, *options: str) -> int:
    """How many changes were answered, in lives that end at moments of chance."""
    rng = random.Random(seed)
    with server(folder, "--snapshot-after", "20000", *options) as zk:
        address = "127.0.0.1", zk.port
        raw, other = Raw(address), Raw(address)
        assert raw.connect()
        assert other.connect()
        for path in ("/n", "/s"):
            assert raw.ask(Type.CREATE, create(path, b"0", 0)) == (0, path)
        assert other.ask(Type.CREATE, create("/e", b"", 1)) == (0, "/e")
        known, session, owner = 0, raw.session, other.session
        for life in range(kills):
            until = time.monotonic() + rng.uniform(0.02, longest_s)
            alive = True
            while alive:
                if time.monotonic() > until and zk.child.running:
                    zk.child.signal(signal.SIGKILL)  # and goes on asking
                alive = raw.ask(Type.MULTI, change(known + 1))[0] == 0
                known += alive
                raw.ask(Type.DELETE, path_and("/nowhere", jute.number(-1)))  # it has a zxid, too
            zk.kill()
            zk.start()
            for one in (raw, other):
                one.drop()
                assert one.connect(), f"seed {seed}, life {life}: its session is gone"
            assert (raw.session, other.session) == (session, owner)
            code, (value, _) = raw.ask(Type.GET_DATA, path_and("/n", b"\0"))
            assert code == 0
            assert int(value) in (known, known + 1), f"seed {seed}, life {life}"
            known = int(value)
            _, names = raw.ask(Type.GET_CHILDREN, path_and("/s", b"\0"))
            assert sorted(map(int, names)) == list(range(max(1, known - WINDOW + 1), known + 1))
            assert raw.ask(Type.EXISTS, path_and("/e", b"\0"))[0] == 0
        assert other.ask(Type.CLOSE)[0] == 0
        assert raw.ask(Type.EXISTS, path_and("/e", b"\0"))[0] == -101
    return known


@pytest.mark.parametrize("options", [(), ("--sync", "--snapshot-after", "2000")])
def test_nothing_that_was_answered_is_lost_and_nothing_is_invented(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    assert killed(tmp_path, KILLS, 1, 0.25, *options) > 10 * KILLS
    kinds = {file.name.partition(".")[0] for file in (tmp_path / "data").iterdir()}
    assert kinds >= {"log", "snapshot"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "data").iterdir())


def test_a_damaged_log_is_named_and_not_begun_again_without_it(tmp_path: Path) -> None:
    with server(tmp_path) as zk:
        raw = Raw(("127.0.0.1", zk.port))
        raw.connect()
        for path in ("/a", "/b", "/c"):
            assert raw.ask(Type.CREATE, create(path, b"", 0))[0] == 0
        zk.kill()
        zk.start()
        raw.drop()
        assert raw.connect()
        assert raw.ask(Type.CREATE, create("/d", b"", 0))[0] == 0
        zk.kill()
        first, *_ = sorted((tmp_path / "data").glob("log.*"))
        data = bytearray(first.read_bytes())
        data[len(data) // 2] ^= 1
        first.write_bytes(data)
        with pytest.raises(AssertionError, match=r"log\.1: it is damaged after \d+ bytes: restore"):
            zk.start()


def test_a_session_that_ends_while_the_server_is_down_ends_a_full_time_out_later(
    tmp_path: Path,
) -> None:
    with server(tmp_path) as zk:
        address = "127.0.0.1", zk.port
        raw, other = Raw(address, 1000), Raw(address)
        assert raw.connect()
        assert other.connect()
        assert raw.ask(Type.CREATE, create("/e", b"", 1))[0] == 0
        raw.drop()
        zk.kill()
        zk.start()
        began = time.monotonic()
        other.drop()
        assert other.connect()
        assert other.ask(Type.EXISTS, path_and("/e", b"\0"))[0] == 0
        gone = lambda: other.ask(Type.EXISTS, path_and("/e", b"\0"))[0] == -101  # noqa: E731
        eventually(gone, "it is gone", lambda: "", 10)
        assert time.monotonic() - began >= 0.9
        assert not raw.connect()


def test_a_port_that_is_taken_is_told_in_a_line(tmp_path: Path) -> None:
    with server(tmp_path / "first") as zk:
        command = [sys.executable, "-m", "highwater.zookeeper", "--data", str(tmp_path / "second")]
        done = subprocess.run(
            [*command, "--port", str(zk.port)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1
        assert re.fullmatch(
            rf"127\.0\.0\.1:{zk.port}: .*in use.*: give another --port or --host\n", done.stderr
        )
