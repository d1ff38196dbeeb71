"""A client of ZooKeeper's wire, frame by frame: its answers as they come, told in plain values."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from highwater.zookeeper import jute
from highwater.zookeeper.acl import Acl
from highwater.zookeeper.jute import Reader, Type
from highwater.zookeeper.tree import Null

_OPEN = [Acl(31, "world", "anyone")]


def path_and(path: str, *more: bytes) -> bytes:
    return jute.text(path) + b"".join(more)


def create(path: str, data: bytes, flags: int, acl: list[Acl] | None = None) -> bytes:
    acl = _OPEN if acl is None else acl
    return path_and(path, jute.buffer(data), jute.acls(acl), jute.number(flags))


def multi(parts: Sequence[tuple[int, bytes]]) -> bytes:
    heads = [struct.pack(">i?i", kind, False, -1) + body for kind, body in parts]
    return b"".join([*heads, struct.pack(">i?i", -1, True, -1)])


@dataclass(slots=True)
class Raw:
    """One session over one connection at a time."""

    address: tuple[str, int]
    timeout_ms: int = 10_000
    session: int = 0
    password: bytes = bytes(16)
    seen: int = 0
    negotiated: int = 0
    notified: list[tuple[int, str]] = field(default_factory=list)
    """(event, path) since they were taken."""
    _socket: socket.socket | None = None
    _xid: int = 0

    def connect(self, within_s: float = 10.0) -> bool:
        """Whether the session lives."""
        self._socket = socket.create_connection(self.address, within_s)
        head = struct.pack(">iqiq", 0, self.seen, self.timeout_ms, self.session)
        self._socket.sendall(jute.frame(head + jute.buffer(self.password) + b"\0"))
        frame = self.frame()
        if frame is None:
            return False
        reader = Reader(frame)
        reader.int32()
        self.negotiated, self.session = reader.int32(), reader.int64()
        self.password = reader.buffer()
        return self.negotiated > 0

    def drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, kind: int, body: bytes = b"", xid: int | None = None) -> tuple[int, Any]:
        """The error code and what the answer says; (1, None) where the connection was closed."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        assert self._socket is not None
        try:
            self._socket.sendall(jute.frame(struct.pack(">ii", xid, kind) + body))
            while (frame := self.frame()) is not None:
                reader = Reader(frame)
                answered, zxid, code = reader.int32(), reader.int64(), reader.int32()
                if answered == jute.NOTIFICATION_XID:
                    event, _ = reader.int32(), reader.int32()
                    self.notified.append((event, reader.text()))
                    continue
                assert answered == xid, (answered, xid)
                self.seen = max(self.seen, zxid)
                return code, told(kind, reader) if code == 0 else None
        except OSError:
            pass
        return 1, None

    @property
    def socket(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def send(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(data)

    def rest(self, data: bytes) -> bytes:
        """What comes for these bytes, to the end of the connection."""
        got = b""
        try:
            self.send(data)
            assert self._socket is not None
            while more := self._socket.recv(65536):
                got += more
        except ConnectionError:
            pass
        self.drop()
        return got

    def frame(self) -> bytes | None:
        head = self._take(4)
        return None if head is None else self._take(int.from_bytes(head))

    def _take(self, size: int) -> bytes | None:
        assert self._socket is not None
        got = b""
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                return None
            got += more
        return got


def stat(reader: Reader) -> tuple[int, ...]:
    """Without the times: czxid, mzxid, versions, whether it is an ephemeral, sizes, pzxid."""
    czxid, mzxid, _, _ = (reader.int64() for _ in range(4))
    versions = tuple(reader.int32() for _ in range(3))
    owner, length, children, pzxid = (
        reader.int64(), reader.int32(), reader.int32(), reader.int64(),
    )  # fmt: skip
    return czxid, mzxid, *versions, int(owner != 0), length, children, pzxid


def told(kind: int, reader: Reader) -> Any:
    """The answer to a request of this type, as plain values; lists of names in order.

    Where there is more of it than was read, its size is told, too.
    """
    found = _told(kind, reader)
    return (found, f"{reader.left} bytes more") if reader.left else found


def _told(kind: int, reader: Reader) -> Any:
    match kind:
        case Type.CREATE | Type.SYNC:
            return reader.text()
        case Type.CREATE_2:
            return reader.text(), stat(reader)
        case Type.EXISTS | Type.SET_DATA | Type.SET_ACL:
            return stat(reader)
        case Type.GET_DATA:
            data = reader.buffer()
            return None if isinstance(data, Null) else data, stat(reader)
        case Type.GET_CHILDREN | Type.GET_EPHEMERALS:
            return sorted(reader.texts())
        case Type.GET_CHILDREN_2:
            return sorted(reader.texts()), stat(reader)
        case Type.GET_ALL_CHILDREN_NUMBER:
            return reader.int32()
        case Type.GET_ACL:
            return reader.acl(), stat(reader)
        case Type.WHO_AM_I:
            return sorted((reader.text(), reader.text()) for _ in range(reader.int32()))
        case Type.MULTI | Type.MULTI_READ:
            return _parts(kind, reader)
        case Type.ADD_WATCH:
            return reader.int32()
    return None


def _parts(kind: int, reader: Reader) -> list[Any]:
    found: list[Any] = []
    while True:
        part, done, code = reader.int32(), reader.flag(), reader.int32()
        if done:
            return found
        if part == Type.ERROR:
            assert reader.int32() == code
            found.append(("error", code))
        elif part in (Type.DELETE, Type.CHECK):
            found.append((part, None))
        else:
            found.append((part, _told(part, reader)))
