"""Just enough of ZooKeeper's wire format to know a frame's operation and znodes.

A frame is an int32 size and a body.  The first frame each way is the session's handshake.  A later
request is xid int32, type int32 and the record of its type; nearly all records start with the path.
A ping has xid -2.  A multi is a series of (type int32, done bool, err int32) headers with their
records, ended by a header with done = 1. Source: zookeeper.jute and MultiTransactionRecord of
Apache ZooKeeper.
"""

from __future__ import annotations

from struct import Struct, error

_HEAD = Struct(">ii")
_MULTI_HEAD = Struct(">i?i")
_INT = Struct(">i")

CLOSE_SESSION = -11
MULTI = 14
OPERATIONS = {
    1: "create", 2: "delete", 3: "exists", 4: "getData", 5: "setData", 6: "getACL", 7: "setACL",
    8: "getChildren", 9: "sync", 11: "ping", 12: "getChildren2", 13: "check", MULTI: "multi",
    15: "create2", 16: "reconfig", 19: "createContainer", 21: "createTTL", 101: "setWatches",
    105: "setWatches2", CLOSE_SESSION: "closeSession",
}  # fmt: skip
_WITHOUT_PATH = {"ping", "setWatches", "setWatches2", "closeSession"}


def _string(body: bytes | memoryview, at: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(body, at)
    at += 4
    if length <= 0:
        return "", at
    return bytes(body[at : at + length]).decode("utf-8", "replace"), at + length


def _skip_record(body: bytes | memoryview, kind: int, at: int) -> tuple[str, int]:
    """The path of a multi's record, and the end of the record."""
    path, at = _string(body, at)
    if kind in (1, 15, 19, 21):  # data, acl, flags (and a time to live)
        _, at = _string(body, at)
        (entries,) = _INT.unpack_from(body, at)
        at += 4
        for _ in range(max(entries, 0)):
            _, at = _string(body, at + 4)
            _, at = _string(body, at)
        at += 12 if kind == 21 else 4
    elif kind == 5:  # data, version
        _, at = _string(body, at)
        at += 4
    elif kind in (2, 13):  # version
        at += 4
    return path, at


def parse_request(body: bytes | memoryview) -> tuple[int, str, tuple[str, ...]]:
    """(xid, operation, paths) of a request's body; an unknown or broken one is ("", no paths)."""
    try:
        xid, kind = _HEAD.unpack_from(body)
        name = OPERATIONS.get(kind, "")
        if not name or name in _WITHOUT_PATH:
            return xid, name, ()
        if kind != MULTI:
            return xid, name, (_string(body, 8)[0],)
        paths: list[str] = []
        at = 8
        while True:
            sub, done, _ = _MULTI_HEAD.unpack_from(body, at)
            at += _MULTI_HEAD.size
            if done:
                return xid, name, tuple(paths)
            path, at = _skip_record(body, sub, at)
            paths.append(path)
    except error:
        return 0, "", ()


def response_xid(body: bytes | memoryview) -> int:
    return int(_INT.unpack_from(body)[0])
