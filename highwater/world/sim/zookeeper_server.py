"""ZooKeeper's data tree, sessions and watches, as one pure machine without network or time.

It follows ZooKeeper wherever a client can tell: zxids count every change; a sequence number is the
count of creations under the parent; an ephemeral has no children; a multi is all or nothing and
gets one zxid; a watch fires once, and a session's end deletes its ephemerals and fires theirs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from highwater.world.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    WatchKind,
    ZkError,
    ZkOp,
)


@dataclass(slots=True)
class Znode:
    data: bytes
    czxid: int
    mzxid: int
    owner: int = 0
    version: int = 0
    child_version: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.version, self.owner, len(self.children))


@dataclass(slots=True)
class Session:
    """The server's state of a session."""

    id: int
    timeout_ms: int
    expires_at: float = 0.0
    ephemerals: dict[str, None] = field(default_factory=dict)
    data_watches: dict[str, None] = field(default_factory=dict)
    child_watches: dict[str, None] = field(default_factory=dict)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Ensemble:
    """The state of the whole ensemble, and the events for sessions from the last call."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.fired: list[tuple[int, WatchEvent]] = []
        self._next_session = 0x1000_0000
        for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            self._create(Create(path), 0)

    # -- sessions -------------------------------------------------------------------------------

    def open_session(self, timeout_ms: int) -> Session:
        self._next_session += 1
        session = Session(self._next_session, timeout_ms)
        self.sessions[session.id] = session
        return session

    def end_session(self, session_id: int) -> list[str]:
        """Ends a closed or expired session; gives its deleted ephemerals."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return []
        self.zxid += 1
        gone = [path for path in session.ephemerals if path in self.nodes]
        for path in gone:
            self._remove(path)
        return gone

    def session(self, session_id: int, path: str = "") -> Session:
        found = self.sessions.get(session_id)
        if found is None:
            raise SessionExpired(path)
        return found

    def forget_watches(self, session_id: int) -> None:
        """Forgets a session's watches, because its connection broke."""
        session = self.sessions.get(session_id)
        if session is not None:
            session.data_watches.clear()
            session.child_watches.clear()

    def take_fired(self) -> list[tuple[int, WatchEvent]]:
        fired, self.fired = self.fired, []
        return fired

    def _fire(self, path: str, kind: WatchKind, *, data: bool, child: bool) -> None:
        for session in self.sessions.values():
            hit = data and path in session.data_watches
            if hit:
                del session.data_watches[path]
            if child and path in session.child_watches:
                hit = True
                del session.child_watches[path]
            if hit:
                self.fired.append((session.id, WatchEvent(kind, path)))

    # -- reads ----------------------------------------------------------------------------------

    def node(self, path: str) -> Znode:
        found = self.nodes.get(path)
        if found is None:
            raise NoNode(path)
        return found

    def get(self, session_id: int, path: str, watch: bool) -> tuple[bytes, Stat]:
        session, node = self.session(session_id, path), self.node(path)
        if watch:
            session.data_watches[path] = None
        return node.data, node.stat()

    def exists(self, session_id: int, path: str, watch: bool) -> Stat | None:
        session, node = self.session(session_id, path), self.nodes.get(path)
        if watch:
            session.data_watches[path] = None
        return node.stat() if node else None

    def children(self, session_id: int, path: str, watch: bool) -> list[str]:
        session, node = self.session(session_id, path), self.node(path)
        if watch:
            session.child_watches[path] = None
        return sorted(node.children)

    # -- writes ---------------------------------------------------------------------------------

    def write(self, session_id: int, op: ZkOp) -> tuple[str, Stat] | Stat | None:
        """Makes one change: Create gives path and Stat, SetData its Stat."""
        self.session(session_id, op.path)
        self._check(op, self.nodes)
        self.zxid += 1
        return self._apply(op, session_id)

    def multi(self, session_id: int, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        """All or nothing: every operation is first tried on a copy of the nodes that it touches."""
        self.session(session_id, ops[0].path if ops else "")
        trial = Ensemble.__new__(Ensemble)
        trial.zxid, trial.sessions, trial.fired = (
            self.zxid,
            {session_id: Session(session_id, 0)},
            [],
        )
        touched = {path: None for op in ops for path in (op.path, _parent(op.path))}
        trial.nodes = dict(self.nodes)
        for path in touched:
            if path in self.nodes:
                n = self.nodes[path]
                trial.nodes[path] = Znode(
                    n.data, n.czxid, n.mzxid, n.owner, n.version, n.child_version, dict(n.children)
                )
        for op in ops:
            trial._check(op, trial.nodes)
            trial._apply(op, session_id)
        self.zxid += 1
        results: list[Stat | str | None] = []
        for op in ops:
            done = self._apply(op, session_id)
            results.append(done[0] if isinstance(done, tuple) else done)
        return results

    def _check(self, op: ZkOp, nodes: dict[str, Znode]) -> None:
        match op:
            case Create(path, _, _, sequential):
                parent = nodes.get(_parent(path))
                if parent is None:
                    raise NoNode(path)
                if parent.owner:
                    raise ZkError(path, "NoChildrenForEphemeralsError")
                if not sequential and path in nodes:
                    raise NodeExists(path)
            case SetData(path, _, version) | Check(path, version):
                node = nodes.get(path)
                if node is None:
                    raise NoNode(path)
                if version not in (-1, node.version):
                    raise BadVersion(path)
            case Delete(path, version):
                node = nodes.get(path)
                if node is None:
                    raise NoNode(path)
                if version not in (-1, node.version):
                    raise BadVersion(path)
                if node.children:
                    raise NotEmpty(path)

    def _apply(self, op: ZkOp, session_id: int) -> tuple[str, Stat] | Stat | None:
        match op:
            case Create():
                return self._create(op, session_id)
            case SetData(path, data, _):
                node = self.nodes[path]
                node.data, node.mzxid = data, self.zxid
                node.version += 1
                self._fire(path, WatchKind.CHANGED, data=True, child=False)
                return node.stat()
            case Delete(path, _):
                self._remove(path)
                return None
            case Check():
                return None

    def _create(self, op: Create, session_id: int) -> tuple[str, Stat]:
        parent = self.nodes[_parent(op.path)]
        path = f"{op.path}{parent.child_version:010d}" if op.sequential else op.path
        parent.child_version += 1
        parent.children[path.rpartition("/")[2]] = None
        node = Znode(op.data, self.zxid, self.zxid, session_id if op.ephemeral else 0)
        self.nodes[path] = node
        if op.ephemeral:
            self.sessions[session_id].ephemerals[path] = None
        self._fire(path, WatchKind.CREATED, data=True, child=False)
        self._fire(_parent(path), WatchKind.CHILD, data=False, child=True)
        return path, node.stat()

    def _remove(self, path: str) -> None:
        node = self.nodes.pop(path)
        parent = self.nodes[_parent(path)]
        parent.children.pop(path.rpartition("/")[2], None)
        owner = self.sessions.get(node.owner)
        if owner is not None:
            owner.ephemerals.pop(path, None)
        self._fire(path, WatchKind.DELETED, data=True, child=True)
        self._fire(_parent(path), WatchKind.CHILD, data=False, child=True)
