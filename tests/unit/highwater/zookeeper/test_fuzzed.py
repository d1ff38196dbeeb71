"""A slice of what `scripts/long zookeeper-damage` and `zookeeper-frames` do."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.zookeeper import journal
from highwater.zookeeper.ensemble import Create
from highwater.zookeeper.store import Store, Unreadable
from tests.long.zookeeper_runs import damage, frames, sockets


def test_damaged_files_are_read_rightly_or_refused() -> None:
    found = damage(500)
    assert set(found) == {"refused", "whole", "it ends earlier"}


def test_fuzzed_frames_break_nothing() -> None:
    found = frames(2000)
    assert found["zxids"] > 500, "many are right"
    assert found["ended connections"] > 20


def test_junk_over_a_socket_breaks_nothing() -> None:
    assert sockets(50)["connections"] == 50


def written(folder: Path) -> Store:
    """/0 to /9, a snapshot after /4, and a log after it."""
    store = Store(folder)
    zk = store.load()
    session = zk.open_session(1, 6000, b"secret")
    store.note(journal.session_opened(zk, session, 0))
    for number in range(10):
        op = Create(f"/{number}", bytes(200))
        made, _ = zk.write(1, op, 0)
        store.note(journal.changed(zk, 1, [op], [made], 0))
        store.write(zk)
        if number == 4:
            store.snapshot_here(zk)
    store.close()
    return Store(folder)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_length_that_is_damaged_does_not_take_along_what_follows(
    tmp_path: Path, place: float
) -> None:
    """A record that seems to be cut short may be one whose length has changed."""
    store = written(tmp_path)
    log = tmp_path / "log.7"
    data = bytearray(log.read_bytes())
    ends = [0, *(at for at, _ in journal.records(bytes(data)))]
    data[ends[int(place * (len(ends) - 1))] + 1] ^= 1
    log.write_bytes(data)
    with pytest.raises(Unreadable, match=r"log\.7: it is damaged after \d+ bytes"):
        store.load()
    assert log.read_bytes() == data, "it stays as it is"


@pytest.mark.parametrize(
    ("missing", "why"),
    [("log.1", None), ("log.7", "log.7: it is missing, and follows snapshot.6"),
     ("snapshot.6", None)],
)  # fmt: skip
def test_what_is_missing_is_told_unless_the_rest_has_it(
    tmp_path: Path, missing: str, why: str | None
) -> None:
    store = written(tmp_path)
    (tmp_path / missing).unlink()
    if why is not None:
        with pytest.raises(Unreadable, match=why):
            store.load()
        return
    assert "/9" in store.load().tree.nodes
    store.close()


def test_a_log_at_the_end_that_is_missing_is_told(tmp_path: Path) -> None:
    store = written(tmp_path)
    (tmp_path / "snapshot.6").unlink()
    (tmp_path / "log.7").unlink()
    with pytest.raises(Unreadable, match=r"log\.7: it is missing: restore"):
        store.load()


def test_a_folder_in_the_place_of_a_log_is_told(tmp_path: Path) -> None:
    (tmp_path / "log.1").mkdir()
    with pytest.raises(Unreadable, match=r"log\.1: Is a directory"):
        Store(tmp_path).load()
