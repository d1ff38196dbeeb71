"""Damaged files of the embedded ZooKeeper, as it may find them at its start.

A start gives the last state, or refuses in a line that names a file, and changes nothing.  It may
give an earlier state, exactly, where the logs end earlier, as a crash leaves them: each log is as
it was, and the last one cut.  Such ones it must take.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from highwater.zookeeper import journal
from highwater.zookeeper.acl import ALL, OPEN, READ, Acl
from highwater.zookeeper.ensemble import Create, Delete, Ensemble, Made, Op, SetAcl, SetData
from highwater.zookeeper.store import Store, Unreadable
from tests.unit.highwater.zookeeper.test_ensemble import ALICE

NAMES = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1")
ACLS = ([Acl(ALL, *ALICE)], [Acl(READ, "world", "anyone"), Acl(ALL, *ALICE)], list(OPEN))
LOSES = "it ends earlier"
LEAST = 36
"""Bytes of a record: fewer have no room for all that it must say."""
WHOLE, REFUSED = "whole", "refused"


@dataclass(slots=True)
class Template:
    """Files that a store has written, and the state after each change."""

    files: dict[str, bytes] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    last: int = 0

    @property
    def logs(self) -> list[str]:
        return sorted((n for n in self.files if n.startswith("log")), key=_number)

    def needed(self, files: dict[str, bytes]) -> int:
        """The first log that a start needs: a whole snapshot has those before it."""
        whole = [n for n in files if n.startswith("snapshot") and files[n] == self.files[n]]
        zxid = max(map(_number, whole), default=0)
        return next(n for n, log in enumerate(self.logs) if _number(log) >= zxid + 1)


def _number(name: str) -> int:
    return int(name.partition(".")[2], 16)


def told(zk: Ensemble) -> str:
    found = sorted(zk.tree.nodes.items())
    nodes = [(path, node.data, tuple(node.acl), node.stat()) for path, node in found]
    sessions = sorted((one.id, one.timeout_ms, one.password) for one in zk.sessions.values())
    own = [(id_, sorted(paths)) for id_, paths in sorted(zk.tree.ephemerals.items())]
    return repr((zk.zxid, nodes, sessions, own))


def template(chance: Random, folder: Path) -> Template:
    """Some lives of a server, with snapshots, and sessions that begin and end."""
    made = Template()
    shutil.rmtree(folder, ignore_errors=True)
    for _ in range(chance.choice((1, 2, 3))):
        store = Store(folder)
        zk = store.load()
        made.states[zk.zxid] = told(zk)
        for record in _changes(chance, zk, chance.randrange(1, 40)):
            store.note(record)
            store.write(zk)
            made.states[zk.zxid] = told(zk)
            if chance.random() < 0.1:
                store.snapshot_here(zk)
        store.close()
        made.last = zk.zxid
    made.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return made


def _changes(chance: Random, zk: Ensemble, count: int) -> Iterator[bytes]:
    """Each change, as its record."""
    for ms in range(count):
        id_ = chance.choice((1, 2, 3))
        if id_ not in zk.sessions:
            session = zk.open_session(id_, 1000 * id_, chance.randbytes(16))
            session.ids.append(ALICE)
            yield journal.session_opened(zk, session, ms)
        elif chance.random() < 0.1:
            zk.end_session(id_, ms)
            yield journal.session_ended(zk, id_, ms)
        else:
            ops = [_op(chance) for _ in range(chance.choice((1, 1, 2)))]
            results, _ = zk.multi(id_, ops, ms)
            made = [one for one in results if isinstance(one, Made)]
            whole = len(made) == len(ops)
            yield journal.changed(zk, id_, ops, made, ms) if whole else journal.refused(zk)


def _op(chance: Random) -> Op:
    path, data = chance.choice(NAMES), bytes(chance.randrange(60))
    match chance.randrange(6):
        case 0 | 1 | 2:
            return Create(path, data, ephemeral=chance.random() < 0.3, sequential=data == b"")
        case 3:
            return Delete(path)
        case 4:
            return SetAcl(path, chance.choice(ACLS))
    return SetData(path, data)


def damage(chance: Random, data: bytes) -> bytes:
    """A bit, a cut, a block twice, gone, or of zeros, junk within or after, or in place of it."""
    at = chance.randrange(len(data) + 1)
    size = chance.choice((1, 4, 30, 200, 512))
    block = data[at : at + size]
    match chance.randrange(9):
        case 0 | 1 if block:
            return data[:at] + bytes([block[0] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 2 | 3:
            return data[:at]
        case 4:
            return data[:at] + block + data[at:]
        case 5:
            return data[:at] + data[at + size :]
        case 6:
            return data[:at] + bytes(size) + data[at + len(block) :]
        case 7:
            return data[:at] + chance.randbytes(size) + data[chance.choice((at, at + size)) :]
    return chance.randbytes(chance.choice((0, 1, 7, 40, len(data))))


def check_damaged(chance: Random, made: Template, folder: Path) -> str:
    """Starts on a damaged copy; gives what came of it."""
    files = dict(made.files)
    for name in chance.sample(sorted(files), min(len(files), chance.choice((1, 1, 1, 2)))):
        if chance.random() < 0.1:
            del files[name]
        else:
            files[name] = damage(chance, files[name])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    store = Store(folder)
    try:
        zk = store.load()
    except Unreadable as error:
        line = str(error)
        assert str(folder) in line, line
        assert "\n" not in line, line
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
        assert files != made.files
        assert not _only_cut(made, files), f"a crash leaves this, and it is refused: {line}"
        return REFUSED
    try:
        assert told(zk) == made.states.get(zk.zxid, ""), f"no state of {zk.zxid}"
        if zk.zxid < made.last:
            assert not files or _ends_earlier(made, files), f"{made.last} became {zk.zxid}"
        _goes_on(store, zk, folder)
    finally:
        store.close()
    return WHOLE if zk.zxid == made.last else LOSES


def _only_cut(made: Template, files: dict[str, bytes]) -> bool:
    """Whether nothing but the end of the last log is gone."""
    last = made.logs[-1]
    return last in files and {**files, last: b""} == {**made.files, last: b""} and (
        made.files[last].startswith(files[last])
    )  # fmt: skip


def _ends_earlier(made: Template, files: dict[str, bytes]) -> bool:
    """Whether the logs are a beginning of what they were; a snapshot may be damaged besides."""
    wanted = made.logs[made.needed(files) :]
    logs = [name for name in wanted if name in files]
    if logs != wanted[: len(logs)] or not logs:
        return False
    *before, last = logs
    data, whole = files[last].rstrip(b"\0"), made.files[last]
    return (
        all(
            files[name].startswith(made.files[name][:-LEAST]) for name in before
        )  # all but `goes_on`
        and (whole.startswith(data) or _tells_no_more(data, whole))
        and (last == made.logs[-1] or len(data) < len(whole))
    )


def _tells_no_more(data: bytes, whole: bytes) -> bool:
    """Whether it looks as what a crash leaves of a record: it has said how long it is, and ends
    before that.  What it says of its data nobody can know, and of the last record nothing else."""
    pairs = enumerate(zip(data, whole, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(data), len(whole)))
    ends = [0, *(at for at, _ in journal.records(whole))]
    kept = max(at for at in ends if at <= same)
    after = next((at for at in ends if at > same), len(whole))
    return len(data) - kept < LEAST or len(data) < after or kept == ends[-2]


def _goes_on(store: Store, zk: Ensemble, folder: Path) -> None:
    """One more change, and one more start."""
    session = zk.open_session(9, 1000)
    store.note(journal.session_opened(zk, session, 0))
    store.write(zk)
    after = Store(folder)
    again = after.load()
    after.close()
    assert told(again) == told(zk)
