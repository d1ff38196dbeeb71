"""The log of changes and the snapshot, as bytes, from which a restart rebuilds the ensemble.

Theory of operation.  Each change is written as it was carried out: with the whole name of a
sequential znode, with real ids in place of `auth`, and only as a zxid if it was refused.  So a
replay needs neither rights nor random numbers, and leads to exactly the same tree, Stats included.
A record is its size, the CRC-32C of its payload, and the payload.

The first record that is cut short or does not match its CRC ends the log.  Either a crash has left
it half written, or acknowledged data are damaged: `torn` decides which.  As no zxid is left out,
the zxids show whether a record or a whole log is missing.

A snapshot consists of such records, too: each session and each znode, parents first, and at the end
the last zxid, with the number of records.  A snapshot without that end is not valid.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from highwater.zookeeper import jute
from highwater.zookeeper.acl import OPEN, Acl, Id
from highwater.zookeeper.ensemble import (
    Check,
    Create,
    Delete,
    Ensemble,
    Made,
    Op,
    Session,
    SetAcl,
    SetData,
)
from highwater.zookeeper.jute import BadFrame, Reader, Type
from highwater.zookeeper.tree import ANY_VERSION, Znode

_HEAD = struct.Struct(">iI")
_CHANGE = struct.Struct(">iqqq")
"""(kind, zxid, time in ms, session)"""
_NODE = struct.Struct(">qqqqqqiii")
_ALL: Final = [Id("super", "")]
OPEN_SESSION, END_SESSION, NODE, END, REFUSED, GOES_ON = -100, -101, -102, -103, -104, -105
"""Kinds of records that are no changes of znodes."""
_OF_A_LOG: Final = (Type.MULTI, OPEN_SESSION, END_SESSION, REFUSED, GOES_ON)
_BEGINNINGS: Final = [kind.to_bytes(4, signed=True) for kind in _OF_A_LOG]
_ANY_BEGINNING: Final = re.compile(b"|".join(map(re.escape, _BEGINNINGS)))
LARGEST: Final = 64 << 20
"""A larger size is that of no record: no multi, even of the largest requests, comes near it."""


def sealed(payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), crc32c(payload)) + payload


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the position after each record and its payload, up to the first broken record."""
    at = 0
    while at + _HEAD.size <= len(data):
        size, crc = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        if not 0 <= size <= min(LARGEST, len(data) - start):
            return
        payload = data[start : start + size]
        if crc32c(payload) != crc:
            return
        at = start + size
        yield at, payload


def torn(data: bytes, at: int, next_zxid: int) -> bool:
    """Whether a crash may have left what comes after the last whole record: only zeros, which a
    file that has grown holds before it gets its data, or the beginning of one more record."""
    rest = data[at:]
    if not rest.strip(b"\0"):
        return True
    size, crc = _HEAD.unpack(rest[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    if not 0 <= size <= LARGEST:
        return False
    if len(rest) < _HEAD.size:
        return True
    payload = rest[_HEAD.size :]
    if size <= len(payload) or crc32c(payload) == crc:
        return False  # the record is complete, but is not what was written
    if not any(payload[:4] == kind[: len(payload)] for kind in _BEGINNINGS):
        return False
    if len(payload) < _CHANGE.size:
        return True
    _, zxid, _, _ = _CHANGE.unpack_from(payload)
    return 0 < zxid <= next_zxid and not _has_record(payload)


def _has_record(data: bytes) -> bool:
    """Whether the bytes contain a whole record: then the length before it is wrong, and the record
    before it was not cut short."""
    for found in _ANY_BEGINNING.finditer(data):
        start = found.start()
        if start >= _HEAD.size:
            size, crc = _HEAD.unpack_from(data, start - _HEAD.size)
            end = start + size
            if _CHANGE.size <= size and end <= len(data) and crc32c(data[start:end]) == crc:
                return True
    return False


# --- the log


def session_opened(zk: Ensemble, session: Session, ms: int) -> bytes:
    head = _CHANGE.pack(OPEN_SESSION, zk.zxid, ms, session.id)
    return sealed(head + jute.number(session.timeout_ms) + jute.buffer(session.password))


def session_ended(zk: Ensemble, id_: int, ms: int) -> bytes:
    return sealed(_CHANGE.pack(END_SESSION, zk.zxid, ms, id_))


def refused(zk: Ensemble) -> bytes:
    """The record of a refused change: a client has seen its zxid, so no later one may get it."""
    return sealed(_CHANGE.pack(REFUSED, zk.zxid, 0, 0))


def goes_on(zxid: int) -> bytes:
    """The last record of a log, with the zxid at which the next log begins."""
    return sealed(_CHANGE.pack(GOES_ON, zxid, 0, 0))


def next_log(payload: bytes) -> int:
    """The zxid in a record of `goes_on`; 0 for any other record."""
    kind, zxid, _, _ = _CHANGE.unpack_from(payload)
    return zxid if kind == GOES_ON else 0


def changed(
    zk: Ensemble, session_id: int, ops: Sequence[Op], made: Sequence[Made], ms: int
) -> bytes:
    """The record of one change, or of the parts of a multi that succeeded."""
    body = b"".join(part for op, one in zip(ops, made, strict=True) for part in _part(zk, op, one))
    return sealed(_CHANGE.pack(Type.MULTI, zk.zxid, ms, session_id) + body)


def _part(zk: Ensemble, op: Op, made: Made) -> Iterator[bytes]:
    match op:
        case Create():
            flags = jute.number(int(op.ephemeral))
            yield jute.number(Type.CREATE) + jute.text(made.path) + jute.buffer(op.data)
            yield jute.acls(_acl(zk, made.path)) + flags
        case Delete():
            yield jute.number(Type.DELETE) + jute.text(op.path) + jute.number(ANY_VERSION)
        case SetData():
            yield jute.number(Type.SET_DATA) + jute.text(op.path) + jute.buffer(op.data)
            yield jute.number(ANY_VERSION)
        case SetAcl():
            yield jute.number(Type.SET_ACL) + jute.text(op.path)
            yield jute.acls(_acl(zk, op.path)) + jute.number(ANY_VERSION)
        case Check():
            pass


def _acl(zk: Ensemble, path: str) -> Sequence[Acl]:
    """A znode's ACL in its stored form; the open one if a later part of the same multi deleted the
    znode."""
    node = zk.tree.nodes.get(path)
    return OPEN if node is None else node.acl


def replay(zk: Ensemble, payload: bytes) -> None:
    """Carries out a record of the log, unless the ensemble has it already; raises BadFrame for a
    record that is whole but makes no sense."""
    reader = Reader(payload)
    kind, zxid, ms, session_id = reader.int32(), reader.int64(), reader.int64(), reader.int64()
    if kind == GOES_ON or zxid <= zk.zxid:
        return
    if zxid != zk.zxid + 1:
        raise BadFrame(f"the change {zxid:#x} comes after {zk.zxid:#x}, and others are missing")
    if kind == OPEN_SESSION:
        zk.open_session(session_id, reader.int32(), reader.buffer())
    elif kind == END_SESSION:
        zk.end_session(session_id, ms)
    elif kind == Type.MULTI:
        ops = []
        while reader.left:
            ops.append(jute.read_op(reader.int32(), reader))
        session = zk.sessions.get(session_id)
        if session is None:
            raise BadFrame(f"a change of the session {session_id:#x}, which is not there")
        ids, session.ids = session.ids, _ALL
        results, _ = zk.multi(session_id, ops, ms)
        session.ids = ids
        if not all(isinstance(one, Made) for one in results):
            raise BadFrame(f"a change that cannot have been: {ops}")
    elif kind != REFUSED:
        raise BadFrame(f"a record of the kind {kind}")
    zk.zxid = zxid


# --- the snapshot


def snapshot(zk: Ensemble) -> Iterator[bytes]:
    """Yields the records of a snapshot; the ensemble must not change meanwhile."""
    for session in zk.sessions.values():
        yield session_opened(zk, session, 0)
    waiting, count = ["/"], len(zk.sessions)
    while waiting:
        count += 1
        path = waiting.pop()
        node = zk.tree.nodes[path]
        below = "" if path == "/" else path
        waiting += [f"{below}/{name}" for name in reversed(node.children)]
        head = jute.number(NODE) + jute.text(path) + jute.buffer(node.data) + jute.acls(node.acl)
        yield sealed(
            head
            + _NODE.pack(
                node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime, node.owner,
                node.version, node.aversion, node.created,
            )
        )  # fmt: skip
    yield sealed(struct.pack(">iqi", END, zk.zxid, count))


def restored(data: bytes) -> Ensemble | None:
    """The ensemble in a snapshot; None if the snapshot is not whole."""
    zk = Ensemble()
    zk.tree.nodes.clear()
    for count, (at, payload) in enumerate(records(data)):
        reader = Reader(payload)
        try:
            kind = reader.int32()
            if kind == OPEN_SESSION:
                reader.int64(), reader.int64()
                id_ = reader.int64()
                zk.open_session(id_, reader.int32(), reader.buffer())
            elif kind == NODE:
                _read_node(zk, reader)
            elif kind == END and at == len(data):
                zk.zxid = reader.int64()
                return zk if reader.int32() == count else None
            else:
                return None
        except BadFrame:
            return None
    return None


def _read_node(zk: Ensemble, reader: Reader) -> None:
    path, data, acl = reader.text(), reader.buffer(), tuple(reader.acl())
    numbers = [reader.int64() for _ in range(6)]
    version, aversion, created = (reader.int32() for _ in range(3))
    czxid, mzxid, pzxid, ctime, mtime, owner = numbers
    node = Znode(
        data, OPEN if acl == OPEN else acl, czxid, mzxid, pzxid, ctime, mtime, owner, version,
        aversion, created,
    )  # fmt: skip
    if path != "/":
        above, _, name = path.rpartition("/")
        parent = zk.tree.nodes.get(above or "/")
        if parent is None:
            raise BadFrame(f"{path} comes before its parent")
        parent.children[name] = None
    zk.tree.nodes[path] = node
    if owner:
        zk.tree.ephemerals.setdefault(owner, {})[path] = None
