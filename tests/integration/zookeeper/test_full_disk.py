"""A log that cannot grow: what was answered is kept, nothing more is, and the process ends."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from highwater.zookeeper import jute
from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.journal import session_opened
from highwater.zookeeper.jute import Type
from highwater.zookeeper.store import Store
from tests.integration.zookeeper.raw_client import Raw, create, path_and
from tests.integration.zookeeper.two_servers import Server, server
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
LIMIT = "ulimit -f 256"
"""128 or 256 KiB, as the shell counts."""


def ended(zk: Server) -> int:
    eventually(lambda: not zk.child.running, "it ends", zk.child.new_output)
    code = zk.child.popen.returncode
    assert isinstance(code, int)
    return code


def rises(raw: Raw, first: int) -> int:
    """Makes znodes, each told to who watches, until one is not answered; gives how many were."""
    made = 0
    while raw.ask(Type.CREATE, create(f"/s/{first + made}", bytes(3000), 0))[0] == 0:
        made += 1
    return made


@pytest.mark.parametrize("options", [(), ("--sync",)])
def test_it_acknowledges_nothing_more_and_ends(tmp_path: Path, options: tuple[str, ...]) -> None:
    with server(tmp_path, *options, shell=LIMIT) as zk:
        raw, watcher = Raw(zk.address), Raw(zk.address)
        assert raw.connect()
        assert watcher.connect()
        assert raw.ask(Type.CREATE, create("/s", b"", 0))[0] == 0
        assert watcher.ask(Type.ADD_WATCH, path_and("/s", jute.number(1)))[0] == 0
        made = rises(raw, 0)
        assert made > 10
        told = watcher.rest(b"")
        assert ended(zk) == 1
        lines = [line for line in zk.child.new_output().splitlines() if "serves at" not in line]
        assert len(lines) == 1, lines
        assert "data cannot be written: [Errno 27] File too large: nothing more is" in lines[0]
        raw.drop()
        watcher.drop()
    with server(tmp_path) as zk:  # and there is room again
        raw.address = watcher.address = zk.address
        assert raw.connect()
        assert watcher.connect()
        _, names = raw.ask(Type.GET_CHILDREN, path_and("/s", b"\0"))
        assert sorted(map(int, names)) == list(range(made)), "what was answered, and no more"
        assert told.count(struct.pack(">ii", 1, 3)) == made, "and what was told"
        assert rises_once(raw, made)


def rises_once(raw: Raw, number: int) -> bool:
    return raw.ask(Type.CREATE, create(f"/s/{number}", b"", 0))[0] == 0


def test_a_disk_that_is_full_at_the_start_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(AssertionError, match=r"data cannot be written: \[Errno 17\]"):
        Server(tmp_path)


class Full(Store):
    """No snapshot has room on its disk."""

    def _write_snapshot(self, zk: Ensemble) -> None:
        (self.folder / f"snapshot.{zk.zxid:x}.new").write_bytes(bytes(1000))
        raise OSError("no room")


def test_a_snapshot_that_has_no_room_is_told_and_the_log_goes_on(tmp_path: Path) -> None:
    store, said = Full(tmp_path), list[str]()
    zk = store.load()
    for number in range(2):
        zk.open_session(number, 6000)
        store.note(session_opened(zk, zk.sessions[number], 0))
        store.write(zk)
        store.snapshot(zk)

        def told(count: int = number + 1) -> bool:
            clean = store.reap(said.append)
            if clean is not None:
                clean()
            return len(said) == count

        eventually(told, "it has failed")
    assert said == [f"a snapshot failed in {tmp_path}: the log goes on, and grows"] * 2
    assert not list(tmp_path.glob("*.new")), "it takes no room"
    store.close()
    assert sorted(Store(tmp_path).load().sessions) == [0, 1]


def test_after_half_a_record_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have requests at that moment; and there may be room again."""
    store, write = Store(tmp_path), os.write
    zk = store.load()

    def opens(number: int) -> None:
        zk.open_session(number, 6000)
        store.note(session_opened(zk, zk.sessions[number], 0))

    opens(1)
    store.write(zk)
    with monkeypatch.context() as patched:

        def half(file: int, data: bytes) -> int:
            write(file, data[: len(data) // 2])
            raise OSError("no room")

        patched.setattr(os, "write", half)
        opens(2)
        with pytest.raises(OSError, match="no room"):
            store.write(zk)
    for number in (3, 4):
        with pytest.raises(OSError, match="no room"):
            store.write(zk)
        opens(number)
    store.close()
    assert sorted(Store(tmp_path).load().sessions) == [1]
