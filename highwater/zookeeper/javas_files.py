"""Reads the files of Java's ZooKeeper: a snapshot's znodes and sessions, and a log's changes.

Theory of operation.  A log is a header and records: an Adler-32, the length, a header with the
zxid, the change, the digest of the tree after it, and the byte `B`.  Java preallocates a log with
zeros, and a record of length 0 is its end.  A record without its `B` is an end, too: a crash has
cut it short.  Java ignores whatever comes after such an end.  Here only zeros may follow, and what
seems to be a record cut short may contain no whole record: otherwise damage in the middle of a log
would silently drop everything after it.

A snapshot is a header, the sessions, the ACLs by number, and the znodes, parents first, until the
path `/`; then an Adler-32 of all this.  The digest of the tree and the last zxid may follow, each
with a checksum of its own.

Pure; raises Damaged, with the position, for what is no such file.  Source: FileSnap, FileTxnLog,
SerializeUtils, DataTree.deserialize, SnapStream and DigestCalculator of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from highwater.zookeeper.acl import OPEN, Acl
from highwater.zookeeper.jute import BadFrame, Reader, Type
from highwater.zookeeper.tree import Znode

LOG_MAGIC, SNAPSHOT_MAGIC, VERSION = b"ZKLG", b"ZKSN", 2
HEAD_BYTES: Final = 16
LARGEST: Final = 64 << 20
"""A larger size is that of no record: jute.maxbuffer is 1 MiB, and seldom more than ten."""
CREATE_SESSION, DELETE_CONTAINER = -10, 20
DIGESTS: Final = 2
"""The only version of digests that is compared, as in Java."""
CONTAINER: Final = -(1 << 63)
"""The value in the session's field of a container znode."""
TTL: Final = -(1 << 56)
"""The high byte of a time to live, which is in the same field."""
_OPEN_ID: Final = -1
_ENTRY = struct.Struct(">qi")
_PERSISTED = struct.Struct(">qqqqiiiqq")
"""czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, pzxid."""
_DIGESTED = struct.Struct(">qqqqqiiiq")
_HEADS = re.compile(rb"(?=\0{4}[\s\S]{4}\0[\s\S]{3})")
"""A 32-bit checksum in 64 bits, and a length below 16 MiB; matches may overlap."""
_END_OF_RECORD: Final = 0x42
_TXN_DIGEST_BYTES, _SEAL_BYTES = 12, 13


class Damaged(Exception):
    """The bytes are no valid file of ZooKeeper; `at` is the position of the damage."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(f"at byte {at}: {why}")
        self.at = at


@dataclass(frozen=True, slots=True)
class Snapshot:
    sessions: dict[int, int]
    """Id -> time-out in ms."""
    nodes: dict[str, Znode]
    """Path -> znode, with `/` for the root; `created` has what Java keeps as cversion."""
    digest_zxid: int = 0
    """The zxid of the last change that it may contain: changes go on while it is taken."""
    digest: int | None = None
    """The digest of the tree after that change; None if the file has none."""


class Create(NamedTuple):
    path: str
    data: bytes
    acl: Sequence[Acl]
    owner: int
    cversion: int
    """The parent's cversion after the change; -1 if an older release did not write it."""
    adjusts: bool
    """Whether the parent's cversion changes even if the znode exists already, as for `create`."""


class Delete(NamedTuple):
    path: str


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int


class SetAcl(NamedTuple):
    path: str
    acl: Sequence[Acl]
    aversion: int


class Opened(NamedTuple):
    timeout_ms: int


class Closed(NamedTuple):
    paths: list[str]
    """The session's ephemerals, if the record has them."""


Change = Create | Delete | SetData | SetAcl | Opened | Closed


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a log."""

    at: int
    zxid: int
    session: int
    ms: int
    changes: list[Change] = field(default_factory=list)
    """Empty for a change that was refused, which has a zxid all the same."""
    digest: int | None = None
    """The digest of the tree after these changes."""


# --- a log


def entries(data: bytes) -> Iterator[Entry]:
    """Yields each record, up to the end of the log or a record that a crash has cut short."""
    _header(data, LOG_MAGIC)
    at, used = HEAD_BYTES, len(data.rstrip(b"\0"))
    while at + _ENTRY.size <= len(data):
        crc, size = _ENTRY.unpack_from(data, at)
        start = at + _ENTRY.size
        end = start + size
        if size == 0:
            break
        if not 0 < size <= LARGEST:
            raise Damaged(at, f"a record of {size} bytes")
        if end >= len(data) or data[end] != _END_OF_RECORD:
            _check_torn(data, at, end, used)
            return
        if zlib.adler32(memoryview(data)[start:end]) != crc:
            raise Damaged(at, "the checksum is not that of the record")
        try:
            entry, _ = _entry(at, data[start:end])
        except BadFrame as error:
            raise Damaged(at, str(error)) from None
        yield entry
        at = end + 1
    if at + _ENTRY.size < used:  # fewer bytes are a record's head that a crash has cut short
        raise Damaged(at, "the log ends, and more comes after its end")


def _check_torn(data: bytes, at: int, end: int, used: int) -> None:
    """Raises Damaged for a record without its end, unless a crash may have left it: nothing follows
    it, and with another length it would not be whole."""
    if end < used or _has_record(data, at + 1, used):
        raise Damaged(at, "a record without its end, and more comes after it")
    (crc, told), start = _ENTRY.unpack_from(data, at), at + _ENTRY.size
    try:
        _, size = _entry(at, data[start:used])
    except BadFrame:
        return  # the record is cut short
    for whole in (size, size - _TXN_DIGEST_BYTES):
        if whole != told and zlib.adler32(memoryview(data)[start : start + whole]) == crc:
            raise Damaged(at, "a whole record has the length of another")


def _has_record(data: bytes, at: int, used: int) -> bool:
    """Whether a whole record begins anywhere at or after `at`."""
    for found in _HEADS.finditer(data, at, used):
        crc, size = _ENTRY.unpack_from(data, found.start())
        start = found.start() + _ENTRY.size
        if (
            0 < size < used - start
            and data[start + size] == _END_OF_RECORD
            and zlib.adler32(memoryview(data)[start : start + size]) == crc
        ):
            return True
    return False


def _entry(at: int, payload: bytes) -> tuple[Entry, int]:
    """The record, and its length in bytes; raises BadFrame."""
    reader = Reader(payload)
    session, _, zxid, ms, kind = (
        reader.int64(), reader.int32(), reader.int64(), reader.int64(), reader.int32(),
    )  # fmt: skip
    changes: list[Change] = []
    if kind == Type.MULTI:
        changes = _multi(reader, session)
    elif kind == Type.ERROR:
        reader.int32()
    else:
        changes.append(_change(kind, reader, session))
    digest = None
    if reader.left >= _TXN_DIGEST_BYTES:
        version, told = reader.int32(), reader.int64()
        digest = told if version == DIGESTS else None
    return Entry(at, zxid, session, ms, changes, digest), len(payload) - reader.left


def _change(kind: int, reader: Reader, session: int) -> Change:
    match kind:
        case Type.CREATE | Type.CREATE_2 | Type.CREATE_CONTAINER | Type.CREATE_TTL:
            return _create(kind, reader, session)
        case Type.DELETE:
            return Delete(_path(reader))
        case Type.SET_DATA | Type.RECONFIG:
            return SetData(_path(reader, root=True), reader.buffer(), reader.int32())
        case Type.SET_ACL:
            return SetAcl(_path(reader, root=True), _acl(reader), reader.int32())
        case Type.CLOSE:
            # a release before 3.6 writes no paths; a digest is as long as a path of four bytes
            bare = reader.left == 0 or (
                reader.left == _TXN_DIGEST_BYTES and reader.peek_int32() == DIGESTS
            )
            return Closed([] if bare else reader.texts())
    if kind == CREATE_SESSION:
        return Opened(reader.int32())
    if kind == DELETE_CONTAINER:
        return Delete(_path(reader))
    raise BadFrame(f"a change of the unknown type {kind}")


def _create(kind: int, reader: Reader, session: int) -> Create:
    path, data, acl, owner = _path(reader), reader.buffer(), _acl(reader), 0
    if kind in (Type.CREATE, Type.CREATE_2):
        owner = session if reader.flag() else 0
    # releases before 3.4 end here
    cversion = reader.int32() if reader.left >= 4 else -1
    if kind == Type.CREATE_CONTAINER:
        owner = CONTAINER
    elif kind == Type.CREATE_TTL:
        owner = TTL | reader.int64()
    return Create(path, data, acl, owner, cversion, kind == Type.CREATE)


def _multi(reader: Reader, session: int) -> list[Change]:
    """The changes of a multi; none if one of its parts is an error."""
    parts = [(reader.int32(), reader.buffer()) for _ in range(reader.count())]
    if any(kind == Type.ERROR for kind, _ in parts):
        return []
    return [_change(kind, Reader(body), session) for kind, body in parts if kind != Type.CHECK]


def _path(reader: Reader, *, root: bool = False) -> str:
    path = reader.text()
    if not path.startswith("/") or (path == "/" and not root):
        raise BadFrame(f"the path {path!r}")
    return path


def _acl(reader: Reader) -> Sequence[Acl]:
    acl = tuple(reader.acl())
    return OPEN if not acl or acl == OPEN else acl


# --- a snapshot


def snapshot(data: bytes) -> Snapshot:
    _header(data, SNAPSHOT_MAGIC)
    reader = Reader(data)
    reader.skip(HEAD_BYTES)
    try:
        sessions = {reader.int64(): reader.int32() for _ in range(reader.count())}
        acls: dict[int, Sequence[Acl]] = {_OPEN_ID: OPEN}
        for _ in range(reader.count()):
            number = reader.int64()
            acls[number] = _acl(reader)
        nodes = _nodes(reader, acls)
        _seal(data, reader)
        zxid, digest = 0, None
        if reader.left not in (0, 8 + _SEAL_BYTES):
            zxid, digest = _digest(reader)
            _seal(data, reader)
        if reader.left:
            reader.int64()  # the last zxid, which is also in the file's name
            _seal(data, reader)
    except BadFrame as error:
        raise Damaged(len(data) - reader.left, str(error)) from None
    if reader.left:
        raise Damaged(len(data) - reader.left, "more comes after its end")
    return Snapshot(sessions, nodes, zxid, digest)


def _nodes(reader: Reader, acls: dict[int, Sequence[Acl]]) -> dict[str, Znode]:
    nodes: dict[str, Znode] = {}
    while (path := reader.text()) != "/":
        data, acl = reader.buffer(), reader.int64()
        czxid, mzxid, ctime, mtime, version, created, aversion, owner, pzxid = reader.struct(
            _PERSISTED
        )
        if acl not in acls:
            raise BadFrame(f"{path or '/'} has the access control list {acl}, which is not there")
        node = Znode(
            data, acls[acl], czxid, mzxid, pzxid, ctime, mtime, owner, version, aversion, created
        )
        if (path or "/") in nodes:
            raise BadFrame(f"{path or '/'} comes twice")
        if path:
            above, slash, name = path.rpartition("/")
            parent = nodes.get(above or "/")
            if parent is None or not slash:
                raise BadFrame(f"{path} comes before its parent")
            parent.children[name] = None
        nodes[path or "/"] = node
    if "/" not in nodes:
        raise BadFrame("it has no root")
    return nodes


def _digest(reader: Reader) -> tuple[int, int | None]:
    """The zxid of the last change, and the tree's digest after it."""
    zxid, version = reader.int64(), reader.int32()
    if version < DIGESTS:
        reader.text()
        return zxid, None
    digest = reader.int64()
    return zxid, digest if zxid > 0 and version == DIGESTS else None


def _seal(data: bytes, reader: Reader) -> None:
    at = len(data) - reader.left
    if reader.int64() != zlib.adler32(memoryview(data)[:at]) or reader.text() != "/":
        raise BadFrame("the checksum is not that of what comes before it")


def _header(data: bytes, magic: bytes) -> None:
    if len(data) < HEAD_BYTES:
        raise Damaged(len(data), "it ends within its header")
    if data[:4] != magic:
        raise Damaged(0, f"it begins with {data[:4]!r} and not with {magic!r}")
    if (version := int.from_bytes(data[4:8])) != VERSION:
        raise Damaged(4, f"it has the version {version}, and {VERSION} is known")


# --- the digest


def digest_of(nodes: dict[str, Znode]) -> int:
    """Java's digest of a whole tree: the signed sum of its znodes' digests."""
    total = 0
    for path, node in nodes.items():
        if path.startswith("/zookeeper/"):
            continue
        stat = _DIGESTED.pack(
            node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime, node.version, node.created,
            node.aversion, node.owner,
        )  # fmt: skip
        total += zlib.crc32(stat, zlib.crc32(node.data, zlib.crc32(path.rstrip("/").encode())))
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)
