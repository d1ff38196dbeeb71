"""The simulated ZooKeeper's state: the machine of `highwater.zookeeper`, in the seam's own words.

A watcher is a session here: its connection is told apart from no other, since it has one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from highwater.world.api import (
    BadVersion,
    Check,
    Create,
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
from highwater.zookeeper import ensemble as machine
from highwater.zookeeper import tree
from highwater.zookeeper.codes import Code, KeeperError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from highwater.zookeeper.tree import Znode as Znode
    from highwater.zookeeper.watches import Told

_ERRORS: Final[dict[Code, Callable[[str], ZkError]]] = {
    Code.NO_NODE: NoNode,
    Code.NODE_EXISTS: NodeExists,
    Code.BAD_VERSION: BadVersion,
    Code.NOT_EMPTY: NotEmpty,
    Code.SESSION_EXPIRED: SessionExpired,
    Code.NO_CHILDREN_FOR_EPHEMERALS: lambda path: ZkError(path, "NoChildrenForEphemeralsError"),
}
_KINDS: Final = {
    tree.Event.CREATED: WatchKind.CREATED,
    tree.Event.DELETED: WatchKind.DELETED,
    tree.Event.DATA_CHANGED: WatchKind.CHANGED,
    tree.Event.CHILDREN_CHANGED: WatchKind.CHILD,
}


@dataclass(slots=True)
class Session:
    """The server's state of a session."""

    id: int
    timeout_ms: int
    expires_at: float = 0.0


class Ensemble:
    """The state of the whole ensemble, and the events for sessions from the last call."""

    def __init__(self, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self._machine = machine.Ensemble()
        self._wall_ms = wall_ms
        self.sessions: dict[int, Session] = {}
        self.fired: list[tuple[int, WatchEvent]] = []
        self._next_session = 0x1000_0000

    @property
    def zxid(self) -> int:
        return self._machine.zxid

    @property
    def nodes(self) -> Mapping[str, Znode]:
        return self._machine.tree.nodes

    # -- sessions -------------------------------------------------------------------------------

    def open_session(self, timeout_ms: int) -> Session:
        self._next_session += 1
        opened = self._machine.open_session(self._next_session, timeout_ms)
        self.sessions[opened.id] = session = Session(opened.id, timeout_ms)
        return session

    def end_session(self, session_id: int) -> list[str]:
        """Ends a closed or expired session; gives its deleted ephemerals."""
        self.sessions.pop(session_id, None)
        self._machine.watches.end(session_id)
        gone, told = self._machine.end_session(session_id, self._wall_ms())
        self._tell(told)
        return gone

    def forget_watches(self, session_id: int) -> None:
        """Forgets a session's watches, because its connection broke."""
        self._machine.watches.end(session_id)

    def take_fired(self) -> list[tuple[int, WatchEvent]]:
        fired, self.fired = self.fired, []
        return fired

    def _tell(self, told: Iterable[Told]) -> None:
        for (event, path), all_told in groupby(told, lambda one: one[1:3]):
            for watcher in sorted(one.watcher for one in all_told):  # as the sessions came
                self.fired.append((watcher, WatchEvent(_KINDS[event], path)))

    # -- reads ----------------------------------------------------------------------------------

    def get(self, session_id: int, path: str, watch: bool) -> tuple[bytes, Stat]:
        with _plainly(path):
            data, stat = self._machine.get(session_id, path, session_id if watch else None)
        return data, _stat(stat)

    def exists(self, session_id: int, path: str, watch: bool) -> Stat | None:
        with _plainly(path):
            stat = self._machine.exists(session_id, path, session_id if watch else None)
        return None if stat is None else _stat(stat)

    def children(self, session_id: int, path: str, watch: bool) -> list[str]:
        with _plainly(path):
            names, _ = self._machine.children(session_id, path, session_id if watch else None)
        return names

    # -- writes ---------------------------------------------------------------------------------

    def write(self, session_id: int, op: ZkOp) -> tuple[str, Stat] | Stat | None:
        """Makes one change: Create gives path and Stat, SetData its Stat."""
        with _plainly(op.path):
            made, told = self._machine.write(session_id, _op(op), self._wall_ms())
        self._tell(told)
        stat = None if made.stat is None else _stat(made.stat)
        return (made.path, stat) if made.path and stat is not None else stat

    def multi(self, session_id: int, ops: Sequence[ZkOp]) -> list[Stat | str | None]:
        """All or nothing."""
        with _plainly(ops[0].path if ops else ""):
            results, told = self._machine.multi(
                session_id, [_op(op) for op in ops], self._wall_ms()
            )
        self._tell(told)
        made: list[Stat | str | None] = []
        for op, result in zip(ops, results, strict=True):
            if not isinstance(result, machine.Made):
                if result is Code.OK:
                    continue
                raise _error(result, op.path)
            made.append(result.path or (None if result.stat is None else _stat(result.stat)))
        return made


def _op(op: ZkOp) -> machine.Op:
    match op:
        case Create(path, data, ephemeral, sequential):
            return machine.Create(path, data, ephemeral=ephemeral, sequential=sequential)
        case SetData(path, data, version):
            return machine.SetData(path, data, version)
        case Check(path, version):
            return machine.Check(path, version)
    return machine.Delete(op.path, op.version)


def _stat(stat: tree.Stat) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeral_owner, stat.num_children)


def _error(code: Code, path: str) -> ZkError:
    known = _ERRORS.get(code)
    return known(path) if known is not None else ZkError(path, code.name)


@contextmanager
def _plainly(path: str) -> Iterator[None]:
    try:
        yield
    except KeeperError as error:
        raise _error(error.code, error.path or path) from None
