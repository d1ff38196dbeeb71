"""ZooKeeper's whole state: the sessions, the tree that they change, and the watches on it.

Each change and each beginning or end of a session gets a zxid.  So does a change that is refused:
ZooKeeper numbers a request before it checks it.  A method that changes something returns its result
and the notifications of watchers, in that order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from highwater.zookeeper import acl as rights
from highwater.zookeeper.acl import Acl, Id
from highwater.zookeeper.codes import Code, KeeperError
from highwater.zookeeper.tree import ANY_VERSION, Moment, Stat, Tree
from highwater.zookeeper.watches import Told, Watches


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    acl: Sequence[Acl] = rights.OPEN
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetAcl:
    path: str
    acl: Sequence[Acl]
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int = ANY_VERSION


Op = Create | Delete | SetData | SetAcl | Check


class Made(NamedTuple):
    """The result of an operation: the path, if it created a znode; the Stat, if it has one."""

    path: str = ""
    stat: Stat | None = None


@dataclass(slots=True)
class Session:
    id: int
    timeout_ms: int
    password: bytes = b""
    ids: list[Id] = field(default_factory=lambda: [rights.ANYONE])
    """The ids that its present connection has proved."""


class Ensemble:
    def __init__(self) -> None:
        self.zxid = 0
        """The zxid of the last change."""
        self.tree = Tree()
        self.watches = Watches()
        self.sessions: dict[int, Session] = {}

    # --- sessions

    def open_session(self, id_: int, timeout_ms: int, password: bytes = b"") -> Session:
        self.zxid += 1
        self.sessions[id_] = session = Session(id_, timeout_ms, password)
        return session

    def end_session(self, id_: int, ms: int) -> tuple[list[str], list[Told]]:
        """Ends a session that was closed or has expired; returns its ephemerals, which are deleted,
        and the notifications.  Does nothing if it has ended already."""
        if self.sessions.pop(id_, None) is None:
            return [], []
        when = self._next(ms)
        gone = list(self.tree.ephemerals.get(id_, ()))
        for path in gone:
            self.tree.remove(path, when)
        return gone, self.watches.fire(self.tree.commit())

    def session(self, id_: int) -> Session:
        """The session of this id; raises SESSION_EXPIRED."""
        found = self.sessions.get(id_)
        if found is None:
            raise KeeperError(Code.SESSION_EXPIRED)
        return found

    def _next(self, ms: int) -> Moment:
        self.zxid += 1
        return Moment(self.zxid, ms)

    # --- changes

    def write(self, session_id: int, op: Op, ms: int) -> tuple[Made, list[Told]]:
        """Makes one change; raises KeeperError."""
        session = self.session(session_id)
        made = self._apply(session, op, self._next(ms))
        return made, self.watches.fire(self.tree.commit())

    def multi(
        self, session_id: int, ops: Sequence[Op], ms: int
    ) -> tuple[list[Made | Code], list[Told]]:
        """Makes all changes or none.  If one fails, the results are codes: OK for those before it,
        its own error, and RUNTIME_INCONSISTENCY for those after it."""
        session, when = self.session(session_id), self._next(ms)
        results: list[Made | Code] = []
        for number, op in enumerate(ops):
            try:
                results.append(self._apply(session, op, when))
            except KeeperError as error:
                self.tree.roll_back()
                after = [Code.RUNTIME_INCONSISTENCY] * (len(ops) - number - 1)
                return [*[Code.OK] * number, error.code, *after], []
        return results, self.watches.fire(self.tree.commit())

    def _apply(self, session: Session, op: Op, when: Moment) -> Made:
        tree, ids = self.tree, session.ids
        match op:
            case Create():
                owner = session.id if op.ephemeral else 0
                path = tree.create(
                    op.path, op.data, op.acl, owner, when, ids, sequential=op.sequential
                )
                return Made(path, tree.nodes[path].stat())
            case Delete():
                tree.delete(op.path, op.version, when, ids)
            case SetData():
                return Made(stat=tree.set_data(op.path, op.data, op.version, when, ids))
            case SetAcl():
                return Made(stat=tree.set_acl(op.path, op.acl, op.version, ids))
            case Check():
                tree.check(op.path, op.version, ids)
        return Made()

    # --- reads; with a watcher, they set a watch

    def get(
        self, session_id: int, path: str, watcher: Hashable | None = None
    ) -> tuple[bytes, Stat]:
        session, node = self.session(session_id), self.tree.node(path)
        rights.check(node.acl, rights.READ, session.ids, path)
        if watcher is not None:
            self.watches.data(path, watcher)
        return node.data, node.stat()

    def exists(self, session_id: int, path: str, watcher: Hashable | None = None) -> Stat | None:
        session, node = self.session(session_id), self.tree.nodes.get(path or "/")
        if node is not None:
            rights.check(node.acl, rights.READ, session.ids, path)
        if watcher is not None:
            self.watches.data(path, watcher)
        return node.stat() if node is not None else None

    def children(
        self, session_id: int, path: str, watcher: Hashable | None = None
    ) -> tuple[list[str], Stat]:
        session, node = self.session(session_id), self.tree.node(path)
        rights.check(node.acl, rights.READ, session.ids, path)
        if watcher is not None:
            self.watches.children(path, watcher)
        return sorted(node.children), node.stat()
