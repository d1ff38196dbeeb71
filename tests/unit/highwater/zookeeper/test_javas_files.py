"""Java's files, made here byte by byte: what is read of them, whole, cut and damaged.

Those of a real server are in tests/integration/zookeeper/test_import.py.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import pytest

from highwater.zookeeper import jute
from highwater.zookeeper.acl import OPEN, Acl
from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.javas_data import NotHere, password_of
from highwater.zookeeper.javas_files import CONTAINER, TTL, digest_of
from highwater.zookeeper.javas_import import read, take_over
from highwater.zookeeper.jute import Type
from highwater.zookeeper.store import Store
from highwater.zookeeper.tree import Tree

SESSION, OTHER = 0x100_0000_0000_0001, 0x100_0000_0000_0002
READ = (Acl(1, "world", "anyone"),)


def seal(data: bytes) -> bytes:
    return data + struct.pack(">q", zlib.adler32(data)) + jute.text("/")


def snapshot(zxid: int = 0, sessions: dict[int, int] | None = None, owner: int = 0) -> bytes:
    """Of the fresh tree; with an owner, of one that has /x besides."""
    data = b"ZKSN" + struct.pack(">iq", 2, -1)
    sessions = sessions or {}
    data += jute.number(len(sessions))
    for id_, timeout_ms in sessions.items():
        data += struct.pack(">qi", id_, timeout_ms)
    data += jute.number(1) + struct.pack(">q", 7) + jute.acls(READ)
    nodes = {path.rstrip("/"): -1 for path in Tree().nodes} | ({"/x": 7} if owner else {})
    for path, acl in nodes.items():
        own = owner if path == "/x" else 0
        data += jute.text(path) + jute.buffer(b"") + struct.pack(">q", acl)
        data += struct.pack(">qqqqiiiqq", 0, 0, 0, 0, 0, 0, 0, own, 0)
    data = seal(data + jute.text("/"))
    data = seal(data + struct.pack(">qiq", 0, 2, 0))
    return seal(data + struct.pack(">q", zxid))


def change(zxid: int, kind: int, body: bytes = b"", session: int = SESSION) -> bytes:
    """A record of a log, without a digest."""
    payload = struct.pack(">qiqqi", session, 1, zxid, 1000 + zxid, kind) + body
    return struct.pack(">qi", zlib.adler32(payload), len(payload)) + payload + b"B"


def create(path: str, data: bytes, cversion: int, *, ephemeral: bool = False) -> bytes:
    head = jute.text(path) + jute.buffer(data) + jute.acls(OPEN)
    return head + bytes([ephemeral]) + jute.number(cversion)


def multi(*parts: tuple[int, bytes]) -> bytes:
    found = [jute.number(kind) + jute.buffer(body) for kind, body in parts]
    return jute.number(len(parts)) + b"".join(found)


SET = jute.text("/a") + jute.buffer(b"two") + jute.number(1)
RECORDS = (
    change(1, -10, jute.number(6000)),
    change(2, Type.CREATE, create("/a", b"one", 1)),
    change(3, Type.ERROR, jute.number(-110)),
    change(4, Type.CREATE_2, create("/e", b"", 2, ephemeral=True)),
    change(
        5, Type.MULTI,
        multi((Type.CHECK, jute.text("/a") + jute.number(0)), (Type.SET_DATA, SET),
              (Type.CREATE, create("/a/b", bytes(3), 1)))
    ),
    change(
        6, Type.MULTI,
        multi((Type.ERROR, jute.number(0)), (Type.ERROR, jute.number(-101)))
    ),
    change(7, Type.SET_ACL, jute.text("/a") + jute.acls(READ) + jute.number(1)),
    change(8, -10, jute.number(9000), OTHER),
    change(9, Type.CLOSE, jute.texts(["/e"])),
    change(10, Type.DELETE, jute.text("/a/b")),
)  # fmt: skip
LOG = b"ZKLG" + struct.pack(">iq", 2, 0) + b"".join(RECORDS)
ENDS = [16 + sum(map(len, RECORDS[:count])) for count in range(len(RECORDS) + 1)]


def folder(place: Path, **files: bytes) -> Path:
    """`version-2`, with files of such names; `log_1` is log.1."""
    made = place / "version-2"
    made.mkdir(parents=True, exist_ok=True)
    for old in made.iterdir():
        old.unlink()
    for name, data in files.items():
        (made / name.replace("_", ".")).write_bytes(data)
    return made


def loaded(place: Path, **files: bytes) -> Ensemble:
    warned: list[str] = []
    return read(folder(place, **files), warned.append)


def told(zk: Ensemble) -> object:
    nodes = {path: (node.data, node.acl, node.stat()) for path, node in zk.tree.nodes.items()}
    return zk.zxid, nodes, {one.id: (one.timeout_ms, one.password) for one in zk.sessions.values()}


def test_a_log_gives_what_was_done(tmp_path: Path) -> None:
    zk = loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG + bytes(1000))
    assert zk.zxid == 10
    assert set(zk.tree.nodes) == {*Tree().nodes, "/a"}
    node = zk.tree.nodes["/a"]
    assert (node.data, node.acl, node.version, node.aversion) == (b"two", READ, 1, 1)
    assert (node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime) == (2, 5, 10, 1002, 1005)
    assert (node.created, zk.tree.nodes["/"].created, zk.tree.nodes["/"].pzxid) == (1, 2, 9)
    assert {one.id: one.timeout_ms for one in zk.sessions.values()} == {OTHER: 9000}
    assert zk.tree.ephemerals == {}


def test_a_password_is_javas(tmp_path: Path) -> None:
    # of java.util.Random with the seed id ^ 0xB3415C00, as a real server has given it
    assert password_of(0x100022FAB840000).hex() == "be3f83dc7309e422cc239ad374ce7c12"
    zk = loaded(tmp_path, snapshot_0=snapshot(0, {SESSION: 5000}))
    assert zk.sessions[SESSION].password == password_of(SESSION)


def test_changes_that_a_snapshot_holds_already_do_no_harm(tmp_path: Path) -> None:
    """It is taken while changes are made."""
    whole = loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG)
    ahead = snapshot(3, {SESSION: 6000, OTHER: 9000}, owner=OTHER)
    log = LOG + change(11, Type.CREATE, create("/x", b"", 3, ephemeral=True), OTHER)
    zk = loaded(tmp_path, snapshot_3=ahead, log_1=log)
    assert zk.zxid == 11
    assert "/a" not in zk.tree.nodes, "it is missing, as the snapshot does not have it"
    assert zk.tree.nodes["/x"].acl == OPEN, "of the creation"
    assert zk.tree.nodes["/"].created == 3
    assert list(zk.tree.ephemerals[OTHER]) == ["/x"]
    assert whole.zxid == 10


def test_ephemerals_of_sessions_that_are_gone_end(tmp_path: Path) -> None:
    zk = loaded(tmp_path, snapshot_5=snapshot(5, {OTHER: 1}, owner=SESSION), log_6=LOG[:16])
    assert "/x" not in zk.tree.nodes
    assert zk.tree.nodes["/"].pzxid == 5


@pytest.mark.parametrize("padding", [0, 700])
def test_a_log_that_a_crash_has_cut_gives_what_was_whole(tmp_path: Path, padding: int) -> None:
    states = [told(loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG[:end])) for end in ENDS]
    for cut in range(16, len(LOG), 3):
        whole = sum(end <= cut for end in ENDS) - 1
        log = LOG[:cut] + bytes(padding)
        assert told(loaded(tmp_path, snapshot_0=snapshot(), log_1=log)) == states[whole], cut
    assert loaded(tmp_path, snapshot_0=snapshot(), log_1=b"").zxid == 0, "it was begun"
    # the server goes on in a new one
    later = LOG[:16] + b"".join(RECORDS[6:])
    zk = loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG[: ENDS[7] - 5], log_7=later)
    assert told(zk) == states[-1]


@pytest.mark.parametrize("padding", [0, 700])
def test_no_bit_of_a_log_turns_over_unnoticed(tmp_path: Path, padding: int) -> None:
    whole = told(loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG))
    for at in range(len(LOG)):
        log = bytearray(LOG + bytes(padding))
        log[at] ^= 1 << at * 5 % 8
        if 8 <= at < 16:  # the number of the database, which says nothing
            assert told(loaded(tmp_path, snapshot_0=snapshot(), log_1=bytes(log))) == whole
            continue
        with pytest.raises(NotHere, match=r"log\.1: at byte \d+: "):
            loaded(tmp_path, snapshot_0=snapshot(), log_1=bytes(log))


def test_bytes_that_are_gone_do_not_take_along_what_follows(tmp_path: Path) -> None:
    """What is read as the length is another number then, and may lie beyond the end."""
    for begun in ENDS[:-2]:
        for size in (1, 2, 3, 4, 8):
            log = LOG[: begun + 6] + LOG[begun + 6 + size :] + bytes(700)
            with pytest.raises(NotHere, match=r"log\.1: at byte \d+: "):
                loaded(tmp_path, snapshot_0=snapshot(), log_1=log)


def test_no_bit_of_a_snapshot_turns_over_unnoticed(tmp_path: Path) -> None:
    data = snapshot(0, {SESSION: 6000}, owner=SESSION)
    for at in range(len(data)):
        turned = bytes([data[at] ^ 1 << at * 5 % 8])
        with pytest.raises(NotHere, match=r"snapshot\.0: at byte \d+: .*no snapshot is whole"):
            loaded(tmp_path, snapshot_0=data[:at] + turned + data[at + 1 :])
    for cut in range(len(data)):
        if cut in (len(data) - 21, len(data) - 54):  # older releases have no such parts
            continue
        with pytest.raises(NotHere):
            loaded(tmp_path, snapshot_0=data[:cut])


def test_a_damaged_snapshot_is_passed_over_where_the_logs_have_it_all(tmp_path: Path) -> None:
    warned: list[str] = []
    broken = snapshot(4)[:-1]
    place = folder(tmp_path, snapshot_0=snapshot(), snapshot_4=broken, log_1=LOG)
    assert read(place, warned.append).zxid == 10
    assert len(warned) == 1
    assert "snapshot.4: at byte" in warned[0]
    with pytest.raises(NotHere, match="the logs end at 0x3, and there is a later snapshot"):
        loaded(tmp_path, snapshot_0=snapshot(), snapshot_4=broken, log_1=LOG[: ENDS[3]])


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    head = LOG[:16]
    later = head + b"".join(RECORDS[5:])
    with pytest.raises(NotHere, match=r"log\.6: the change 0x6 comes after 0x3"):
        loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG[: ENDS[3]], log_6=later)
    with pytest.raises(NotHere, match="has no snapshot"):
        loaded(tmp_path, log_1=LOG)
    with pytest.raises(NotHere, match="snapshots and no log"):
        loaded(tmp_path, snapshot_4=snapshot(4))
    later = head + change(1 << 32 | 1, Type.ERROR, jute.number(0))
    zk = loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG, log_100000001=later)
    assert zk.zxid == 1 << 32 | 1, "an epoch begins at 1"


def test_a_digest_that_is_not_the_trees_is_told(tmp_path: Path) -> None:
    zk = loaded(tmp_path, snapshot_0=snapshot(), log_1=LOG)
    digest = digest_of(zk.tree.nodes)
    for wrong in (0, 1):
        told_ = jute.number(-4) + struct.pack(">iq", 2, digest + wrong)
        log = LOG + change(11, Type.ERROR, told_)
        if not wrong:
            assert loaded(tmp_path, snapshot_0=snapshot(), log_1=log).zxid == 11
            continue
        with pytest.raises(NotHere, match="not those of the digest that is kept of 0xb"):
            loaded(tmp_path, snapshot_0=snapshot(), log_1=log)


@pytest.mark.parametrize(
    ("owner", "why"), [(CONTAINER, "/x is a container"), (TTL | 5, "/x has a time to live")]
)
def test_what_our_server_has_not_is_named(tmp_path: Path, owner: int, why: str) -> None:
    with pytest.raises(NotHere, match=why):
        loaded(tmp_path, snapshot_0=snapshot(owner=owner))


def test_what_has_no_effect_in_our_server_is_told(tmp_path: Path) -> None:
    acl = jute.text("/a") + jute.acls([Acl(31, "sasl", "kafka"), *READ]) + jute.number(2)
    quota = change(12, Type.CREATE, create("/zookeeper/quota/a", b"", 1))
    place = folder(
        tmp_path, snapshot_0=snapshot(), log_1=LOG + change(11, Type.SET_ACL, acl) + quota
    )
    warned: list[str] = []
    take_over(place.parent, warned.append)
    assert [line.partition(",")[0] for line in warned] == [
        "the quotas below /zookeeper/quota have no effect: the embedded ZooKeeper has none",
        "/a is open to logins by sasl",
    ]


def test_a_packed_snapshot_is_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(snapshot(0, {SESSION: 5000}))
    assert SESSION in loaded(tmp_path, snapshot_0_gz=packed).sessions
    with pytest.raises(NotHere, match="it ends too early"):
        loaded(tmp_path, snapshot_0_gz=packed[:-9])
    with pytest.raises(NotHere, match="by snappy"):
        loaded(tmp_path, snapshot_0_snappy=b"x")


def test_what_is_taken_over_is_ours_and_what_was_there_is_kept(tmp_path: Path) -> None:
    folder(tmp_path, snapshot_0=snapshot(), log_1=LOG)
    (tmp_path / "version-2.imported").mkdir()
    made = take_over(tmp_path, print)
    assert (made.zxid, made.sessions, made.kept.name) == (10, 1, "version-2.imported-2")
    assert (made.kept / "log.1").read_bytes() == LOG
    store = Store(tmp_path)
    assert store.load().zxid == 10
    store.close()
    made.kept.rename(tmp_path / "version-2")
    with pytest.raises(NotHere, match=r"embedded ZooKeeper already \(log.b, snapshot.a\)"):
        take_over(tmp_path, print)
