"""ZooKeeper's data tree: znodes with all that a Stat has, and changes that can be rolled back.

Theory of operation.  A change is checked against the present tree and made at once; the step that
undoes it is kept until `commit`.  So an operation of a multi sees those before it, and a multi that
fails costs only as much as it has touched: `roll_back` runs the kept steps in reverse.  The
notifications for watches are kept in the same way, and are dropped by `roll_back`, too.

A Stat's cversion is twice the number of children ever created, less the present number: that counts
each creation and each deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from highwater.zookeeper import acl as rights
from highwater.zookeeper.acl import Acl, Id
from highwater.zookeeper.codes import Code, KeeperError

SPECIAL: Final = frozenset(("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"))
"""The znodes that nobody may delete."""
ANY_VERSION: Final = -1


class Event(IntEnum):
    """The types of notifications.  Source: Watcher.Event.EventType."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class Null(bytes):
    """No data at all, which ZooKeeper and its clients distinguish from empty data."""


NULL: Final = Null()


class Stat(NamedTuple):
    """A znode's Stat, with the fields in their order on the wire; times are in ms."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


@dataclass(slots=True)
class Znode:
    data: bytes
    acl: Sequence[Acl]
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    """The session that owns an ephemeral; else 0."""
    version: int = 0
    aversion: int = 0
    created: int = 0
    """How many children were ever created in it."""
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        children = len(self.children)
        return Stat(
            self.czxid, self.mzxid, self.ctime, self.mtime, self.version,
            2 * self.created - children, self.aversion, self.owner, len(self.data), children,
            self.pzxid,
        )  # fmt: skip


class Change(NamedTuple):
    """A change of which watchers are notified."""

    event: Event
    path: str
    acl: Sequence[Acl] = rights.OPEN
    """The znode's ACL: a watcher that may not read the znode is not notified."""


class Moment(NamedTuple):
    """The zxid and the time of a change."""

    zxid: int
    ms: int


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Raises BAD_ARGUMENTS for a path that PathUtils.validatePath refuses."""
    if path == "/":
        return
    wrong = not path.startswith("/") or path.endswith("/") or "//" in path
    if wrong or any(part in (".", "..") for part in path.split("/")) or not _plain(path):
        raise KeeperError(Code.BAD_ARGUMENTS, path)


def _plain(path: str) -> bool:
    if path.isascii() and path.isprintable():
        return True
    return not any(
        c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\uf8ff" or "\ufff0" <= c <= "\uffff"
        for c in path
    )


class Tree:
    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        """Session -> its ephemeral znodes."""
        self._undo: list[Callable[[], object]] = []
        self._events: list[Change] = []
        for path in ("/", *sorted(SPECIAL - {"/"})):
            self.nodes[path] = Znode(b"", rights.OPEN, 0, 0, 0, 0, 0)
            if path != "/":  # no client has created these, so they do not count as created
                self.nodes[parent_of(path)].children[path.rpartition("/")[2]] = None
        config = self.nodes["/zookeeper/config"]  # Java restricts it by an ACL with version -1
        config.acl, config.aversion = rights.READ_ONLY, -1

    # --- reads

    def node(self, path: str) -> Znode:
        found = self.nodes.get(path or "/")
        if found is None:
            raise KeeperError(Code.NO_NODE, path)
        return found

    # --- changes; one that raises KeeperError has changed nothing

    def create(
        self,
        path: str,
        data: bytes,
        acl: Sequence[Acl],
        owner: int,
        when: Moment,
        ids: Collection[Id],
        *,
        sequential: bool = False,
    ) -> str:
        """Creates a znode and returns its path; the parent numbers the name of a sequential one."""
        if "/" not in path or "\0" in path:
            raise KeeperError(Code.BAD_ARGUMENTS, path)
        acl = rights.fixed(acl, ids, path)
        above = parent_of(path)
        parent = self.node(above)
        rights.check(parent.acl, rights.CREATE, ids, path)
        if sequential:
            path = f"{path}{parent.created:010d}"
        check_path(path)
        if path in self.nodes:
            raise KeeperError(Code.NODE_EXISTS, path)
        if parent.owner:
            raise KeeperError(Code.NO_CHILDREN_FOR_EPHEMERALS, path)
        name, pzxid = path.rpartition("/")[2], parent.pzxid
        self.nodes[path] = Znode(data, acl, *(when.zxid,) * 3, *(when.ms,) * 2, owner)
        parent.children[name] = None
        parent.created += 1
        parent.pzxid = when.zxid
        if owner:
            self.ephemerals.setdefault(owner, {})[path] = None

        def undo() -> None:
            del self.nodes[path], parent.children[name]
            parent.created -= 1
            parent.pzxid = pzxid
            self._disown(owner, path)

        self._undo.append(undo)
        self._events += [
            Change(Event.CREATED, path, acl),
            Change(Event.CHILDREN_CHANGED, above, parent.acl),
        ]
        return path

    def delete(self, path: str, version: int, when: Moment, ids: Collection[Id]) -> None:
        if "/" not in path or "\0" in path or path in SPECIAL:
            raise KeeperError(Code.BAD_ARGUMENTS, path)
        parent = self.node(parent_of(path))
        rights.check(parent.acl, rights.DELETE, ids, path)
        node = self.node(path)
        _check_version(node.version, version, path)
        if node.children:
            raise KeeperError(Code.NOT_EMPTY, path)
        self.remove(path, when)

    def remove(self, path: str, when: Moment) -> None:
        """Deletes a znode without any check, as a session's end deletes its ephemerals."""
        above, name = parent_of(path), path.rpartition("/")[2]
        node, parent = self.nodes.pop(path), self.nodes[above]
        pzxid = parent.pzxid
        del parent.children[name]
        parent.pzxid = when.zxid
        self._disown(node.owner, path)

        def undo() -> None:
            self.nodes[path] = node
            parent.children[name] = None
            parent.pzxid = pzxid
            if node.owner:
                self.ephemerals.setdefault(node.owner, {})[path] = None

        self._undo.append(undo)
        self._events += [
            Change(Event.DELETED, path, node.acl),
            Change(Event.CHILDREN_CHANGED, above, parent.acl),
        ]

    def _disown(self, owner: int, path: str) -> None:
        own = self.ephemerals.get(owner)
        if own is not None:
            own.pop(path, None)
            if not own:
                del self.ephemerals[owner]

    def set_data(
        self, path: str, data: bytes, version: int, when: Moment, ids: Collection[Id]
    ) -> Stat:
        check_path(path)
        node = self.node(path)
        rights.check(node.acl, rights.WRITE, ids, path)
        _check_version(node.version, version, path)
        before = node.data, node.version, node.mzxid, node.mtime
        node.data, node.version = data, node.version + 1
        node.mzxid, node.mtime = when

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime = before

        self._undo.append(undo)
        self._events.append(Change(Event.DATA_CHANGED, path, node.acl))
        return node.stat()

    def set_acl(self, path: str, acl: Sequence[Acl], version: int, ids: Collection[Id]) -> Stat:
        check_path(path)
        acl = rights.fixed(acl, ids, path)
        node = self.node(path)
        rights.check(node.acl, rights.ADMIN, ids, path)
        _check_version(node.aversion, version, path)
        before = node.acl
        node.acl, node.aversion = acl, node.aversion + 1

        def undo() -> None:
            node.acl, node.aversion = before, node.aversion - 1

        self._undo.append(undo)
        return node.stat()

    def check(self, path: str, version: int, ids: Collection[Id]) -> None:
        check_path(path)
        node = self.node(path)
        rights.check(node.acl, rights.READ, ids, path)
        _check_version(node.version, version, path)

    # --- all or nothing

    def commit(self) -> list[Change]:
        """Makes the changes since the last call final; returns those of which watchers are
        notified."""
        self._undo.clear()
        events, self._events = self._events, []
        return events

    def roll_back(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._events.clear()


def _check_version(version: int, wanted: int, path: str) -> None:
    if wanted not in (ANY_VERSION, version):
        raise KeeperError(Code.BAD_VERSION, path)
