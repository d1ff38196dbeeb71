"""ZooKeeper's error codes, and the exception that carries one.  Source: KeeperException.Code."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_WATCHER = -121
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115


class KeeperError(Exception):
    """A request is refused; `path` is the znode."""

    def __init__(self, code: Code, path: str = "") -> None:
        super().__init__(f"{code.name} {path}".rstrip())
        self.code = code
        self.path = path
