"""Snapshots do not hold the loop: not to be made, not to be deleted, and not by their memory."""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from highwater.zookeeper.__main__ import _Garbage
from highwater.zookeeper.ensemble import Create, Ensemble
from highwater.zookeeper.journal import session_opened
from highwater.zookeeper.store import KEPT, Store
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]
MANY = 30_000
MOST_MS = 10


@contextmanager
def stored(folder: Path, kind: type[Store] = Store) -> Iterator[tuple[Store, Ensemble]]:
    store = kind(folder, 1 << 40)
    zk = store.load()
    try:
        yield store, zk
    finally:
        store.close()


def change(store: Store, zk: Ensemble) -> None:
    number = len(zk.sessions) + 1
    zk.open_session(number, 6000)
    store.note(session_opened(zk, zk.sessions[number], 0))
    store.write(zk)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_snapshot_of_many_znodes_begins_in_less_than_10_ms(tmp_path: Path) -> None:
    with stored(tmp_path) as (store, zk):
        zk.open_session(1, 6000)
        for number in range(MANY):
            zk.write(1, Create(f"/{number}", bytes(200)), 0)
        took = []
        for _ in range(5):
            began = time.thread_time()
            store.snapshot(zk)
            took.append(1000 * (time.thread_time() - began))
            _ended(store)()
        assert min(took) < MOST_MS, took


def _ended(store: Store) -> Callable[[], None]:
    """What deletes the files that its last snapshot has made superfluous."""
    found: list[Callable[[], None]] = []

    def over() -> bool:
        clean = store.reap(print)
        if clean is not None:
            found.append(clean)
        return clean is not None

    eventually(over, "the snapshot has ended")
    return found[0]


def test_what_nobody_needs_is_deleted_by_another_thread(tmp_path: Path) -> None:
    with stored(tmp_path) as (store, zk):
        for _ in range(KEPT + 2):
            change(store, zk)
            store.snapshot(zk)
            before = files(tmp_path)
            clean = _ended(store)
            assert set(files(tmp_path)) >= {name for name in before if ".new" not in name}
            assert store.reap(print) is None
            clean()
        left = files(tmp_path)
        assert sum(name.startswith("snapshot.") for name in left) == KEPT
        assert "log.1" not in left


class Slow(Store):
    """Its snapshot takes until there is a file `go`, or its parent is gone."""

    def _write_snapshot(self, zk: Ensemble) -> None:
        parent = os.getppid()
        while not (self.folder / "go").exists() and os.getppid() == parent:
            time.sleep(0.01)
        super()._write_snapshot(zk)


def test_the_child_keeps_no_connection_open(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    there.settimeout(20)
    with stored(tmp_path, Slow) as (store, zk):
        change(store, zk)
        store.snapshot(zk)
        here.close()
        try:
            assert there.recv(1) == b"", "its end, while the child still writes"
            assert store.reap(print) is None
        finally:
            (tmp_path / "go").touch()
        _ended(store)()
    there.close()


def test_a_child_that_cannot_be_made_is_told_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise OSError("no memory")

    said: list[str] = []
    with stored(tmp_path) as (store, zk):
        change(store, zk)
        monkeypatch.setattr(os, "fork", fails)
        store.snapshot(zk)
        change(store, zk)
        for _ in range(2):
            assert store.reap(said.append) is None
    assert said == ["no snapshot can be begun (no memory): the log goes on, and grows"]
    with stored(tmp_path) as (_, zk):
        assert sorted(zk.sessions) == [1, 2]


def test_a_long_collection_is_the_last_that_walks_through_what_it_found() -> None:
    garbage = _Garbage()
    before = gc.get_freeze_count()
    garbage("start", {"generation": 2})
    garbage("stop", {"generation": 2})
    assert gc.get_freeze_count() == before, "it was short"
    garbage("start", {"generation": 2})
    until = time.perf_counter() + 0.005
    eventually(lambda: time.perf_counter() > until, "it took long")
    try:
        garbage("stop", {"generation": 2})
        assert gc.get_freeze_count() > before + 1000
    finally:
        gc.unfreeze()
