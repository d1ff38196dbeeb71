"""ZooKeeper's wire format (jute): requests as this room's operations, and answers as bytes.

Big-endian; a buffer or string is an int32 length and its bytes, with -1 for none, and a vector an
int32 count and its records.  Pure.  Source: zookeeper.jute, MultiOperationRecord and MultiResponse
of Apache ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from highwater.zookeeper.acl import Acl, Id
from highwater.zookeeper.codes import Code, KeeperError
from highwater.zookeeper.ensemble import Check, Create, Delete, Made, Op, SetAcl, SetData
from highwater.zookeeper.tree import NULL, Event, Null, Stat

PING_XID, AUTH_XID, NOTIFICATION_XID, SET_WATCHES_XID = -2, -4, -1, -8
CONNECTED: Final = 3
"""The only state that notifications have here.  Source: KeeperState.SyncConnected."""
_INT, _LONG, _BOOL = Struct(">i"), Struct(">q"), Struct(">?")
_STAT = Struct(">qqqqiiiqiiq")
_REPLY = Struct(">iqi")
_MULTI = Struct(">i?i")
_EPHEMERAL, _SEQUENTIAL = 1, 2


class Type(IntEnum):
    """The types of requests.  Source: ZooDefs.OpCode."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES_2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE = -11
    ERROR = -1


class BadFrame(ValueError):
    """The bytes are no valid request."""


class Connect(NamedTuple):
    """A session's first frame."""

    seen_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool
    tells_read_only: bool
    """Whether the client knows read-only servers, so that the answer must have that field."""


class Reader:
    """Reads the fields of one frame; raises BadFrame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._frame) - self._at

    def _number(self, form: Struct) -> int:
        try:
            (found,) = form.unpack_from(self._frame, self._at)
        except struct.error:
            raise BadFrame("it ends within a number") from None
        self._at += form.size
        return int(found)

    def int32(self) -> int:
        return self._number(_INT)

    def int64(self) -> int:
        return self._number(_LONG)

    def peek_int32(self) -> int:
        found = self._number(_INT)
        self._at -= _INT.size
        return found

    def struct(self, form: Struct) -> tuple[int, ...]:
        """Reads several numbers."""
        if form.size > self.left:
            raise BadFrame("it ends within a number")
        self._at += form.size
        return form.unpack_from(self._frame, self._at - form.size)

    def skip(self, size: int) -> None:
        self._at += size

    def flag(self) -> bool:
        return bool(self._number(_BOOL))

    def buffer(self) -> bytes:
        length = self._number(_INT)
        if length < 0:
            return NULL
        if length > self.left:
            raise BadFrame(f"a field of {length} bytes, where {self.left} are left")
        found = self._frame[self._at : self._at + length]
        self._at += length
        return found

    def text(self) -> str:
        try:
            return self.buffer().decode()
        except UnicodeDecodeError:
            raise BadFrame("a string that is not UTF-8") from None

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.count())]

    def acl(self) -> list[Acl]:
        found = []
        for _ in range(self.count()):
            perms = self.int32()
            found.append(Acl(perms, self.text(), self.text()))
        return found

    def count(self) -> int:
        """Reads the number of elements of a vector."""
        count = self._number(_INT)
        if count > self.left // 4:
            raise BadFrame(f"a vector of {count} records, where {self.left} bytes are left")
        return max(count, 0)


def read_connect(frame: bytes) -> Connect:
    reader = Reader(frame)
    reader.int32()  # the protocol's version, 0
    seen, timeout_ms, id_, password = (
        reader.int64(),
        reader.int32(),
        reader.int64(),
        reader.buffer(),
    )
    tells = reader.left > 0
    return Connect(seen, timeout_ms, id_, password, tells and reader.flag(), tells)


def read_op(kind: int, reader: Reader) -> Op:
    """Reads one change, also in a multi; raises UNIMPLEMENTED for containers and times to live."""
    match kind:
        case Type.CREATE | Type.CREATE_2:
            path, data, acl, flags = reader.text(), reader.buffer(), reader.acl(), reader.int32()
            if flags & ~(_EPHEMERAL | _SEQUENTIAL):
                raise KeeperError(Code.UNIMPLEMENTED, path)
            ephemeral, sequential = bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL)
            return Create(path, data, acl, ephemeral, sequential)
        case Type.DELETE:
            return Delete(reader.text(), reader.int32())
        case Type.SET_DATA:
            return SetData(reader.text(), reader.buffer(), reader.int32())
        case Type.SET_ACL:
            return SetAcl(reader.text(), reader.acl(), reader.int32())
        case Type.CHECK:
            return Check(reader.text(), reader.int32())
    raise KeeperError(Code.UNIMPLEMENTED)


def read_multi(reader: Reader) -> list[tuple[int, Op]]:
    """Reads each operation of a multi, with its type."""
    found: list[tuple[int, Op]] = []
    while True:
        kind, done = reader.int32(), reader.flag()
        reader.int32()  # the error code, which has no meaning in a request
        if done:
            return found
        found.append((kind, read_op(kind, reader)))


def read_multi_read(reader: Reader) -> list[tuple[int, str]]:
    """Reads the type and path of each read in a multi; watches are ignored."""
    found: list[tuple[int, str]] = []
    while True:
        kind, done = reader.int32(), reader.flag()
        reader.int32()
        if done:
            return found
        if kind not in (Type.GET_DATA, Type.GET_CHILDREN):
            raise KeeperError(Code.UNIMPLEMENTED)
        found.append((kind, reader.text()))
        reader.flag()


# --- answers: bodies, and whole frames


def buffer(data: bytes) -> bytes:
    if isinstance(data, Null):
        return _INT.pack(-1)
    return _INT.pack(len(data)) + data


def text(value: str) -> bytes:
    return buffer(value.encode())


def texts(values: Iterable[str]) -> bytes:
    found = [text(value) for value in values]
    return _INT.pack(len(found)) + b"".join(found)


def number(value: int) -> bytes:
    return _INT.pack(value)


def stat(value: Stat) -> bytes:
    return _STAT.pack(*value)


def acls(values: Iterable[Acl]) -> bytes:
    found = [_INT.pack(one.perms) + text(one.scheme) + text(one.id) for one in values]
    return _INT.pack(len(found)) + b"".join(found)


def clients(ids: Iterable[Id]) -> bytes:
    """The answer to whoAmI; the id of a digest is shown without its hash."""
    found = [text(one.scheme) + text(one.id.partition(":")[0]) for one in ids]
    return _INT.pack(len(found)) + b"".join(found)


def made(kind: int, result: Made) -> bytes:
    """The body of the answer to a change."""
    match kind:
        case Type.CREATE:
            return text(result.path)
        case Type.CREATE_2:
            assert result.stat is not None
            return text(result.path) + stat(result.stat)
        case Type.SET_DATA | Type.SET_ACL:
            assert result.stat is not None
            return stat(result.stat)
    return b""


def multi(results: Sequence[tuple[int, bytes | Code]]) -> bytes:
    """The body of the answer to a multi: for each part its type, and its body or error."""
    parts = []
    for kind, result in results:
        if isinstance(result, Code):
            parts += [_MULTI.pack(Type.ERROR, False, result), _INT.pack(result)]
        else:
            parts += [_MULTI.pack(kind, False, 0), result]
    return b"".join([*parts, _MULTI.pack(-1, True, -1)])


def frame(body: bytes) -> bytes:
    return _INT.pack(len(body)) + body


def reply(xid: int, zxid: int, code: int = 0, body: bytes = b"") -> bytes:
    return _INT.pack(_REPLY.size + len(body)) + _REPLY.pack(xid, zxid, code) + body


def notification(event: Event, path: str, zxid: int) -> bytes:
    body = _INT.pack(event) + _INT.pack(CONNECTED) + text(path)
    return reply(NOTIFICATION_XID, zxid, 0, body)


def connected(asked: Connect, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The answer to a session's first frame; a time-out of 0 means that the session is over."""
    head = struct.pack(">iiq", 0, timeout_ms, session_id)
    return frame(head + buffer(password) + b"\0" * asked.tells_read_only)
